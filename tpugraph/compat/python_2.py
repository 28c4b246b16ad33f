"""Tells a Python 2 program by the error that it ends with."""

from __future__ import annotations

import os
import re
import traceback
from pathlib import Path

from tpugraph.support.errors import UsageError

_SYNTAX = re.compile("Missing parentheses in call to|multiple exception types must be parenthesized|leading zeros in decimal|"
                     "inconsistent use of tabs|parameters cannot be parenthesized")  # fmt: skip
"""What Python 3 says of text that is right in Python 2."""

_TEXT = re.compile(
    r"^\s*raise\s+[\w.]+\s*,|<>|`\w|\b\d+[lL]\b|\bur[\"']|\bexcept\s+[\w.]+\s*,\s*\w+\s*:|^\s*print\s+[^(=\s]"
)
"""Lines that are right in Python 2 alone, where Python 3 says no more than ``invalid syntax``."""

_RUNNING = {
    AttributeError: "object has no attribute '(has_key|iteritems|iterkeys|itervalues|next)'",
    NameError: "name '(xrange|unicode|basestring|long|raw_input|reduce|unichr|file|cmp|execfile|reload|apply|buffer)'",
    TypeError: r"object of type '(map|filter|zip)' has no len|'(map|filter|zip|dict_keys|dict_values|dict_items)' object "
               "(is not subscriptable|does not support item)",
    ModuleNotFoundError: r"'(cPickle|StringIO|cStringIO|Queue|ConfigParser|urllib2|urlparse|commands|HTMLParser|__builtin__|"
                         "Tkinter|thread|copy_reg|SocketServer|BaseHTTPServer|httplib)'",
    ImportError: r"cannot import name '(izip|imap|ifilter|izip_longest|maketrans|urlopen|urlretrieve|quote)'",
}  # fmt: skip
"""What a program that Python 3 can read runs into, by the kind of error."""

_IMPORTS = ("<frozen importlib", os.path.join(os.path.dirname(__file__), "import_hook.py"))


def python_2(error: BaseException) -> UsageError | None:
    """The error to show where a program is one for Python 2; None where nothing says so.

    Only what the program's own text raised is looked at: a library may use the same words of a mistake in its arguments.
    """
    if isinstance(error, SyntaxError):
        message, file, line = error.msg or "", error.filename or "", error.lineno or 0
        text = error.text or "" if message.startswith("invalid") else ""
        known = bool(_SYNTAX.search(message) or _TEXT.search(text))
    else:
        frames = [
            frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_IMPORTS)
        ]
        file, line = (frames[-1].filename, frames[-1].lineno or 0) if frames else ("", 0)
        message, known = str(error), "site-packages" not in file and _raised(error, str(error), file)
    if not known:
        return None
    return UsageError(
        f"{file} is a Python 2 program: {message}",
        origin=f"{file}:{line}",
        fix="translate it, for instance with 2to3 -w or futurize",
    )


def _raised(error: BaseException, message: str, file: str) -> bool:
    if isinstance(error, ModuleNotFoundError) and error.name:
        beside = Path(file).with_name(f"{error.name}.py")
        if beside.is_file():  # an implicit relative import
            return True
    return any(type(error) is kind and re.search(words, message) for kind, words in _RUNNING.items())
