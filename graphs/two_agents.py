"""The smallest desk for `langgraph dev`: two agents, one handoff, nothing privileged."""

import sys
from pathlib import Path

from langgraph_handoff.demo import two_agents

sys.path.insert(0, str(Path(__file__).parent))
from _models import MODEL

graph = two_agents(MODEL).compile(name="two_agents")
