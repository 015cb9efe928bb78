# SPDX-License-Identifier: Apache-2.0
"""The page as a tab of TensorBoard: a dynamic plugin, found by its entry point `tensorboard_plugins`.

TensorBoard's documentation: github.com/tensorflow/tensorboard, ADDING_A_PLUGIN.md. TensorBoard
imports this module wherever PyProf is installed: it needs nothing but TensorBoard until somebody opens the tab.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensorboard.plugins import base_plugin

from pyprof.core.errors import WHERE, install
from pyprof.core.frame import numpy_conflict

if TYPE_CHECKING:
    from pyprof.integrations.tensorboard_page import Page

NAME = "pyprof"
_INDEX = b"""export async function render() {
  document.location.replace(new URL("page/index.html", import.meta.url));
}
"""
_PREFIX = "/page"
_NEEDS = ("a2wsgi", "fastapi", "xlsxwriter", "fpdf")


class Plugin(base_plugin.TBPlugin):  # type: ignore[misc]
    """The tab."""

    plugin_name = NAME

    def __init__(self, context: base_plugin.TBContext):
        self._logdir = context.logdir
        self._lock = threading.Lock()
        self._page: Page | None = None

    def get_plugin_apps(self) -> dict[str, Any]:
        """Return the WSGI applications by route, below /data/plugin/pyprof."""
        return {"/index.js": _index, f"{_PREFIX}/*": self._serve}

    def close(self) -> None:
        """End the server of the page."""
        if self._page is not None:
            atexit.unregister(self._page.close)
            self._page.close()
            self._page = None

    def is_active(self) -> bool:
        """Return whether the log directory holds a profile. TensorBoard asks often: names of files decide."""
        try:
            from pyprof.parse.name_search import holds_recording
        except ImportError:  # the tab says what is wrong
            return bool(self._logdir)
        return bool(self._logdir) and holds_recording(Path(self._logdir))

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        """Return how TensorBoard shows the tab: its module navigates the tab's frame to the page."""
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name="PyProf", disable_reload=True)

    def _serve(self, environ: Mapping[str, Any], start_response: Any) -> Any:
        missing = [name for name in _NEEDS if find_spec(name) is None]
        if missing:
            return _sentence(f"This tab needs {', '.join(missing)}: {install('tensorboard')} {WHERE}.", start_response)
        with self._lock:
            if self._page is None:
                try:
                    from pyprof.integrations.tensorboard_page import Page
                except ImportError as error:
                    return _sentence(numpy_conflict(error) or f"{error}.", start_response)
                self._page = Page(self._logdir)
                atexit.register(self._page.close)
        _, _, path = environ["PATH_INFO"].partition(_PREFIX)
        below = {**environ, "PATH_INFO": path or "/", "SCRIPT_NAME": ""}
        return self._page(below, start_response)


def _sentence(text: str, start_response: Any) -> list[bytes]:
    headers = [("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff")]
    start_response("503 Service Unavailable", headers)
    return [text.encode()]


def _index(environ: Mapping[str, Any], start_response: Any) -> list[bytes]:
    headers = [("Content-Type", "text/javascript"), ("X-Content-Type-Options", "nosniff")]
    start_response("200 OK", headers)
    return [_INDEX]
