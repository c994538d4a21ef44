"""Requests to render and tokenize that both servers must answer alike."""

from typing import Any, NamedTuple

CHAT = "/v1/chat/completions/render"
COMPLETION = "/v1/completions/render"
RESPONSES = "/v1/responses/render"
MESSAGES = "/v1/messages/render"
TOKENIZE = "/tokenize"
DETOKENIZE = "/detokenize"


class Case(NamedTuple):
    """One request."""

    name: str
    path: str
    body: Any


_HI = [{"role": "user", "content": "What is the weather in Paris?"}]
_PREFILLED = [*_HI, {"role": "assistant", "content": "It is"}]
_PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "description": "Looks it up.", "parameters": _PARAMETERS},
}
_NAMED = {"type": "function", "function": {"name": "get_weather"}}
_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
}
_HISTORY = [
    {"role": "system", "content": "Be brief."},
    *_HI,
    {"role": "assistant", "content": None, "tool_calls": [_CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "18 degrees"},
]
_PARTS = [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
_UNICODE = "Zażółć 漢字 👩‍👩‍👧‍👦 <|im_end|> <think>no</think>  \n\n\t x"
_LONG = "A long sentence, again and again. " * 9000
_SCHEMA = {"name": "s", "schema": _PARAMETERS}
_IMAGE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]


def _chat(name: str, messages: Any = _HI, /, **more: Any) -> Case:
    return Case(f"chat {name}", CHAT, {"messages": messages, **more})


def _completion(name: str, prompt: Any, /, **more: Any) -> Case:
    return Case(f"completion {name}", COMPLETION, {"prompt": prompt, **more})


def _responses(name: str, given: Any = "Hello.", /, **more: Any) -> Case:
    return Case(f"responses {name}", RESPONSES, {"input": given, **more})


def _messages(name: str, messages: Any = _HI, /, **more: Any) -> Case:
    body = {"model": "demo", "max_tokens": 32, "messages": messages, **more}
    return Case(f"messages {name}", MESSAGES, body)


def _tokenize(name: str, /, **body: Any) -> Case:
    return Case(f"tokenize {name}", TOKENIZE, body)


def _detokenize(name: str, /, **body: Any) -> Case:
    return Case(f"detokenize {name}", DETOKENIZE, body)


CHATS = [
    _chat("plain"),
    _chat("model", model="other"),
    _chat("own id", request_id="mine"),
    _chat("unicode", [{"role": "user", "content": _UNICODE}]),
    _chat("parts", [{"role": "user", "content": _PARTS}]),
    _chat("history", _HISTORY, tools=[_TOOL]),
    _chat("sampling", temperature=0.3, top_p=0.9, top_k=5, seed=7, min_p=0.1, n=2),
    _chat("penalties", presence_penalty=0.5, frequency_penalty=-0.5, repetition_penalty=1.2),
    _chat("stops", stop=["END", "\n\n"], stop_token_ids=[3], include_stop_str_in_output=True),
    _chat("lengths", max_tokens=16, min_tokens=2, ignore_eos=True),
    _chat("max_completion_tokens", max_completion_tokens=40000),
    _chat("logprobs", logprobs=True, top_logprobs=3),
    _chat("prompt_logprobs", prompt_logprobs=1),
    _chat("logit_bias", logit_bias={"5": 1.5}, bad_words=["foo"]),
    _chat("stream", stream=True, stream_options={"include_usage": True}),
    _chat("priority", priority=3, cache_salt="salt", return_token_ids=True),
    _chat("offsets", return_token_offsets=True),
    _chat("transfer", kv_transfer_params={"a": 1}, vllm_xargs={"x": "y"}),
    _chat("forwarded ids", kv_transfer_params={"prompt_token_ids": [1, 2, 3]}),
    _chat("tools", tools=[_TOOL]),
    _chat("tools required", tools=[_TOOL], tool_choice="required"),
    _chat("tools named", tools=[_TOOL], tool_choice=_NAMED),
    _chat("tools none", tools=[_TOOL], tool_choice="none", parallel_tool_calls=False),
    _chat("prefill", _PREFILLED, continue_final_message=True, add_generation_prompt=False),
    _chat("no generation prompt", add_generation_prompt=False),
    _chat("special tokens", add_special_tokens=True, skip_special_tokens=False),
    _chat("no thinking", chat_template_kwargs={"enable_thinking": False}),
    _chat("effort", reasoning_effort="low", include_reasoning=False),
    _chat("json", response_format={"type": "json_object"}),
    _chat("schema", response_format={"type": "json_schema", "json_schema": _SCHEMA}),
    _chat("structured", structured_outputs={"regex": "a+"}),
    _chat("truncated", truncate_prompt_tokens=4),
    _chat("truncated right", truncate_prompt_tokens=4, truncation_side="right"),
    _chat("documents", documents=[{"title": "t", "text": "x"}]),
    _chat("unknown member", made_up=1),
]
CHAT_REFUSALS = [
    _chat("unknown model", model="nope"),
    _chat("template", chat_template="{{ messages }}"),
    _chat("template kwarg", chat_template_kwargs={"chat_template": "x"}),
    _chat("too long", [{"role": "user", "content": _LONG}]),
    _chat("too long by characters", [{"role": "user", "content": _LONG * 9}]),
    _chat("beam", use_beam_search=True),
    _chat("prefill and prompt", _PREFILLED, continue_final_message=True),
    _chat("image", [{"role": "user", "content": _IMAGE}]),
    _chat("no messages", []),
    _chat("bad role", [{"role": "king", "content": "x"}]),
    _chat("bad temperature", temperature=-1),
    _chat("bad top_p", top_p=2),
    _chat("bad n", n=0),
    _chat("bad logprobs", logprobs=True, top_logprobs=-5),
    _chat("top_logprobs alone", top_logprobs=3),
    _chat("too many logprobs", logprobs=True, top_logprobs=50),
    _chat("tool choice without tools", tool_choice="required"),
    _chat("unknown tool", tools=[_TOOL], tool_choice={**_NAMED, "function": {"name": "x"}}),
    _chat("empty tools", tools=[]),
    _chat("bad effort", reasoning_effort="enormous"),
    _chat("stream options alone", stream_options={"include_usage": True}),
    _chat("mm kwargs", mm_processor_kwargs={"a": 1}),
    _chat("bad forwarded ids", kv_transfer_params={"prompt_token_ids": [-1]}),
    _chat("bad schema", response_format={"type": "json_schema"}),
    _chat("text for a number", max_tokens="many"),
    _chat("null messages", None),
    Case("chat no members", CHAT, {}),
    Case("chat a list", CHAT, []),
    Case("chat no JSON", CHAT, b'{"messages": [}'),
    Case("chat empty", CHAT, b""),
]
COMPLETIONS = [
    _completion("text", "Once upon a time"),
    _completion("unicode", _UNICODE, add_special_tokens=False),
    _completion("texts", ["One", "Two", "Three"], n=2, max_tokens=5),
    _completion("ids", [1, 2, 3, 300]),
    _completion("id lists", [[1, 2], [3]]),
    _completion("one text in a list", ["One"], request_id="mine"),
    _completion("logprobs", "One", logprobs=2, echo=True, max_tokens=0),
    _completion("prompt_logprobs", "One", prompt_logprobs=1),
    _completion("stream", "One", stream=True, stream_options={"include_usage": True}),
    _completion("truncated", "One two three four five six seven", truncate_prompt_tokens=2),
    _completion("truncated ids", [1, 2, 3, 4], truncate_prompt_tokens=-1),
    _completion("offsets", "One two", return_token_offsets=True),
    _completion("structured", "One", structured_outputs={"choice": ["a", "b"]}),
]
COMPLETION_REFUSALS = [
    _completion("empty", ""),
    _completion("empty list", []),
    _completion("unknown model", "One", model="nope"),
    _completion("too long", _LONG),
    _completion("ids out of range", [1, 9_999_999]),
    _completion("negative ids", [-1]),
    _completion("suffix", "One", suffix="two"),
    _completion("beam", "One", use_beam_search=True),
    _completion("embeds", None, prompt_embeds="AAAA"),
    _completion("no prompt", None),
    _completion("wrong type", {"a": 1}),
    _completion("echo and stream logprobs", "One", prompt_logprobs=-2),
    _completion("max_tokens", "One", max_tokens=-1),
]
RESPONSE_CASES = [
    _responses("text"),
    _responses("messages", [{"role": "user", "content": "Hi"}], instructions="Be brief."),
    _responses("tools", tools=[{"type": "function", **_TOOL["function"]}], tool_choice="auto"),  # type: ignore[dict-item]
    _responses("sampling", temperature=0.2, top_p=0.5, max_output_tokens=7, stream=True),
    _responses("effort", reasoning={"effort": "low"}),
    _responses("json", text={"format": {"type": "json_object"}}),
    _responses("truncation", "One two. " * 9000, truncation="auto", request_id="resp_mine"),
    _responses("previous", previous_response_id="resp_x"),
    _responses("unknown model", model="nope"),
    _responses("too long", _LONG),
    _responses("wrong type", 5),
    _responses("background", background=True, store=False),
    Case("responses nothing", RESPONSES, {}),
]
MESSAGE_CASES = [
    _messages("text"),
    _messages("system", system="Be brief.", temperature=0.1, top_k=3, stop_sequences=["END"]),
    _messages("parts", [{"role": "user", "content": _PARTS}], system=_PARTS, stream=True),
    _messages("tools", tools=[{"name": "get_weather", "input_schema": _PARAMETERS}]),
    _messages(
        "tool choice",
        tools=[{"name": "get_weather", "input_schema": _PARAMETERS}],
        tool_choice={"type": "any"},
    ),
    _messages("thinking off", thinking={"type": "disabled"}),
    _messages("thinking on", thinking={"type": "enabled", "budget_tokens": 1024}),
    _messages("unknown model", model="nope"),
    _messages("too long", [{"role": "user", "content": _LONG}]),
    _messages("bad role", [{"role": "king", "content": "x"}]),
    _messages("no tokens", max_tokens=0),
    Case("messages nothing", MESSAGES, {}),
]
TOKENIZE_CASES = [
    _tokenize("text", prompt=_UNICODE),
    _tokenize("strings", prompt=_UNICODE, return_token_strs=True, add_special_tokens=False),
    _tokenize("empty", prompt=""),
    _tokenize("long", prompt=_LONG, model="other"),
    _tokenize("chat", messages=_HISTORY, tools=[_TOOL], return_token_strs=True),
    _tokenize("chat kwargs", messages=_HI, chat_template_kwargs={"enable_thinking": False}),
    _tokenize("prefill", messages=_PREFILLED, continue_final_message=True),
    _tokenize("no prompt", messages=_HI, add_generation_prompt=False, add_special_tokens=True),
    _tokenize("both", messages=_PREFILLED, continue_final_message=True, add_generation_prompt=True),
    _tokenize("template", messages=_HI, chat_template="x"),
    _tokenize("unknown model", prompt="x", model="nope"),
    _tokenize("list", prompt=["x"]),
    _tokenize("nothing"),
    _detokenize("ids", tokens=[1695, 1287, 198, 71, 72, 1696, 198, 5, 300]),
    _detokenize("broken bytes", tokens=[130, 131, 200]),
    _detokenize("none", tokens=[]),
    _detokenize("out of range", tokens=[9_999_999]),
    _detokenize("negative", tokens=[-1]),
    _detokenize("huge", tokens=[2**70]),
    _detokenize("text", tokens="x"),
    _detokenize("unknown model", tokens=[1], model="nope"),
]
CASES = [
    *CHATS,
    *CHAT_REFUSALS,
    *COMPLETIONS,
    *COMPLETION_REFUSALS,
    *RESPONSE_CASES,
    *MESSAGE_CASES,
    *TOKENIZE_CASES,
]
