"""Which model the deployed graphs run: the one that HANDOFF_MODEL names, else the demo model, which needs no key."""

import os

MODEL = os.environ.get("HANDOFF_MODEL") or None
