"""Servers as child processes: started, looked at from outside, ended with all that they started.

Demo, benchmarks and tests may import it; of the project it imports `core.vllm_adapter.patches`, in
the process of the reference only. Begin with `launching`, then `fleet`.
"""
