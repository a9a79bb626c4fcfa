"""The support desk for `langgraph dev`: triage, tech, billing, and a person who approves credits.

It is compiled without a checkpointer, since the server brings its own. The ledger of its privileged writes is named by
HANDOFF_LEDGER_URL; without it, it stands beside the credits in `support.ledger.db`.
"""

import os
import sys
from pathlib import Path

from langgraph_handoff.demo import support
from langgraph_handoff.ledger import open_ledger

sys.path.insert(0, str(Path(__file__).parent))
from _models import MODEL

_FOLDER = Path(os.environ.get("HANDOFF_FOLDER", "."))
_LEDGER = os.environ.get("HANDOFF_LEDGER_URL") or str(_FOLDER / "support.ledger.db")

graph = support(_FOLDER / "support.db", MODEL).compile(ledger=open_ledger(_LEDGER), name="support")
