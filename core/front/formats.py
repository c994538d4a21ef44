"""Every API the front door answers in, by name."""

from core.formats.chat.format import ChatFormat
from core.formats.completions.format import CompletionFormat
from core.formats.format import Format
from core.protocol.plan import ApiName

FORMATS: dict[ApiName, Format] = {
    ApiName.CHAT: ChatFormat(),
    ApiName.COMPLETION: CompletionFormat(),
}
