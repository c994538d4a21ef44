"""Flags, environment and defaults."""

import re
from pathlib import Path

import pytest

from core.protocol.options import ModelOptions
from gateway.cli import main as cli
from gateway.cli.flags import FLAGS
from gateway.cli.resolving import resolve
from gateway.cli.settings import ServeSettings, SettingsError
from gateway.engines.settings import EngineSettings
from tests.serving import DEMO_MODEL

MODEL = str(DEMO_MODEL)
ENGINE = "http://engine:8200"
FRONT: dict[str, object] = {"engine_url": [ENGINE]}


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for flag in FLAGS:
        monkeypatch.delenv(flag.variable, raising=False)


def _resolve(given: dict[str, object]) -> ServeSettings:
    return resolve({"model": MODEL} | given)


def test_defaults() -> None:
    settings = _resolve({})
    assert (settings.host, settings.port) == ("127.0.0.1", 8100)
    assert settings.model == ModelOptions(model=MODEL)
    assert settings.counts.shards >= 1
    assert settings.http.max_body_bytes == 128 * 2**20


def test_a_flag_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DERENDER_PORT", "9000")
    monkeypatch.setenv("DERENDER_SHARDS", "3")
    settings = _resolve({"port": "9001"})
    assert (settings.port, settings.counts.shards) == (9001, 3)


def test_the_environment_alone_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {
        "MODEL": MODEL,
        "SERVED_MODEL_NAME": "a, b",
        "MAX_MODEL_LEN": "8k",
        "MAX_BODY_BYTES": "1M",
        "TOOL_CALL_PARSER": "hermes",
        "ENABLE_AUTO_TOOL_CHOICE": "true",
        "DEFAULT_CHAT_TEMPLATE_KWARGS": '{"enable_thinking": false}',
        "LOG_LEVEL": "debug",
    }
    for name, text in texts.items():
        monkeypatch.setenv(f"DERENDER_{name}", text)
    settings = resolve({})
    assert settings.model.served_model_names == ("a", "b")
    assert settings.model.max_model_len == 8000
    assert settings.http.max_body_bytes == 2**20
    assert settings.model.enable_auto_tool_choice
    assert settings.model.default_chat_template_kwargs == {"enable_thinking": False}
    assert settings.logs.level == "DEBUG"


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("8k", 8000), ("8K", 8192), ("25.6k", 25_600), ("1m", 10**6), ("512", 512), ("auto", None)],
)
def test_lengths_read_as_in_vllm(text: str, tokens: int | None) -> None:
    assert _resolve({"max_model_len": text}).model.max_model_len == tokens


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"port": "x"}, "--port must be a whole number, not 'x'"),
        ({"port": "65536"}, "--port must be from 0 to 65535, not 65536"),
        ({"shards": "0"}, "--shards must be from 1 to 512, not 0"),
        ({"max_model_len": "1.5K"}, "--max-model-len must be whole before K"),
        ({"max_model_len": "0"}, "--max-model-len must be at least 1"),
        ({"default_chat_template_kwargs": "[1]"}, "must be a JSON object"),
        ({"default_chat_template_kwargs": "{"}, "must be a JSON object"),
        ({"tool_strict_level": "high"}, "--tool-strict-level must be one of auto, function"),
        ({"chat_template_content_format": "x"}, "must be one of auto, string, openai"),
        ({"log_level": "loud"}, "--log-level must be one of DEBUG"),
        ({"enable_auto_tool_choice": True}, "requires --tool-call-parser"),
        ({"chat_template": "/nowhere.jinja"}, "--chat-template '/nowhere.jinja': No such file"),
        ({"engine_url": ["engine:8200"]}, "--engine-url: an engine URL must look like http://host"),
        ({"engine_url": ["http://"]}, "--engine-url: an engine URL must look like"),
        ({"engine_url": ["ftp://engine"]}, "--engine-url: an engine URL must look like"),
        ({"engine_url": ["http://engine:0"]}, "--engine-url: an engine URL must look like"),
        ({"engine_url": ["http://engine:99999"]}, "--engine-url: an engine URL must look like"),
        ({"engine_url": [ENGINE, "engine"]}, "--engine-url: an engine URL must look like"),
        ({"engine_url": ["http://engine/?a=b"]}, "'engine' may have no query and no fragment"),
        (FRONT | {"render_shards": "0"}, "--engine-url requires --render-shards to be at least 1"),
        (FRONT | {"engine_api_key": "a\nb"}, "key must consist of printable ASCII characters"),
        (FRONT | {"engine_api_key": "schlüssel"}, "key must consist of printable ASCII"),
        (FRONT | {"engine_connect_timeout": "soon"}, "--engine-connect-timeout must be"),
        (FRONT | {"engine_idle_timeout": "-1"}, "--engine-idle-timeout must be"),
        (FRONT | {"engine_max_requests": "-1"}, "--engine-max-requests must be"),
        (FRONT | {"write_timeout": "0"}, "--write-timeout must be"),
        ({"tool_parser_plugin": "/nowhere.py"}, "--tool-parser-plugin '/nowhere.py' is not a file"),
    ],
)
def test_bad_values_are_named(given: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(message)):
        _resolve(given)


def test_engines_open_the_front_door(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _resolve({}).engines is None
    monkeypatch.setenv(
        "DERENDER_ENGINE_URL", f"{ENGINE}, {ENGINE}/, https://user:secret@other/prefix/"
    )
    monkeypatch.setenv("DERENDER_ENGINE_API_KEY", "key")
    settings = _resolve({"engine_idle_timeout": "7.5", "forward_authorization": True})
    assert settings.engines == EngineSettings(
        urls=(ENGINE, "https://user:secret@other/prefix"),
        api_key="key",
        forward_authorization=True,
        idle_timeout_s=7.5,
    )


def test_a_password_in_a_bad_url_is_not_shown() -> None:
    with pytest.raises(SettingsError) as caught:
        _resolve({"engine_url": ["htp://user:secret@engine"]})
    assert "secret" not in str(caught.value)


def test_a_bad_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DERENDER_TRUST_REMOTE_CODE", "maybe")
    with pytest.raises(SettingsError, match="DERENDER_TRUST_REMOTE_CODE must be true or false"):
        _resolve({})


def test_model_folders_are_checked(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.json").write_text("{}")
    (tmp_path / "file").write_text("")
    for name, message in {
        "none": "does not exist",
        "file": "is not a folder",
        "empty": "has no config.json",
        "bare": "has no tokenizer files",
    }.items():
        with pytest.raises(SettingsError, match=message):
            resolve({"model": str(tmp_path / name)})
    with pytest.raises(SettingsError, match="DERENDER_MODEL"):
        resolve({})


def test_another_vllm_is_refused_unless_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.40.1")
    with pytest.raises(SettingsError, match=r"vllm 0\.40\.1 .*--allow-untested-vllm"):
        _resolve({})
    assert _resolve({"allow_untested_vllm": True})


@pytest.mark.parametrize(
    "argv",
    [
        ["serve", "/nowhere"],
        ["serve", MODEL, "--no-such-flag"],
        ["serve", MODEL, "--port", "x"],
        ["serve", MODEL, "--host", "no.such.host.invalid"],
        ["bake"],
        [],
    ],
)
def test_what_cannot_start_ends_with_one_line_and_2(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = cli.main(argv)
    except SystemExit as error:
        code = error.code
    assert code == 2
    assert re.fullmatch(r"derender: error: .+\n", capsys.readouterr().err)


def test_help_names_every_flag_and_variable(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["serve", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for flag in FLAGS:
        assert (flag.metavar if flag.is_positional else f"--{flag.name}") in shown
        assert flag.variable in shown.replace("- ", "-")


def test_underscores_stand_for_dashes() -> None:
    assert cli._with_dashes(["--max_model_len=8", "--chat_template", "a_b"]) == [
        "--max-model-len=8",
        "--chat-template",
        "a_b",
    ]


def test_engines_may_be_named_one_flag_at_a_time() -> None:
    words = ["serve", "m", "--engine-url", "http://a", "http://b", "--engine-url", "http://c"]
    assert cli.read(words)["engine_url"] == ["http://a", "http://b", "http://c"]
