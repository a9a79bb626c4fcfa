"""A memory of cases, without a graph: a refund is asked for, blocked on evidence, resubmitted, approved, and learned from."""

from langgraph_handoff import CaseMemory, connect

# With a file instead of :memory:, Rex may be another process, or a person with `langgraph-handoff inbox rex`.
storage = connect(":memory:")
ari, rex = CaseMemory(storage.store), CaseMemory(storage.store)
CASE, OTHER = "acme-csv-export", "beta-csv-export"


def ask(amount: int) -> str:
    """Ari may not refund more than $500 alone, and asks Rex."""
    return ari.handoff(
        case_id=CASE,
        from_agent="ari",
        to_agent="rex",
        requested_action="approve",
        content={
            "summary": f"Refund Acme Corp ${amount} for the CSV-export incident.",
            "decisions": ["full refund, not partial"],
            "constraints": ["above $500 a reviewer approves", "Acme is on the Scale plan"],
            "open_questions": ["Does the May 3 plan-change credit overlap?"],
        },
    )


def review() -> None:
    """Rex does not trust the summary: he looks at what the tools did."""
    for request in rex.receive_handoffs(agent_id="rex"):
        question = "credits for the CSV-export incident"
        found = rex.recall(case_id=request.case_id, query=question, entry_types=["trace"], limit=1)
        if "800" in request.text or not found:
            rex.feedback(handoff_id=request.entry_id, from_agent="rex", verdict="approve")
            continue
        why = "Check for existing credits before computing a refund: Acme was given $400 already. Resubmit for $800."
        sources = [found[0].entry_id]
        rex.feedback(handoff_id=request.entry_id, from_agent="rex", verdict="block", comments=why, sources=sources)


if __name__ == "__main__":
    credit = {"tool": "issue_credit", "args": {"customer": "Acme Corp", "amount": 400}, "result": "goodwill, CSV-export incident"}
    ari.record(case_id=CASE, entry_type="trace", agent="ari", content=credit)
    for amount in (1200, 800):
        handoff = ask(amount)
        review()
        # Ari waits without asking all the time; None would mean that nobody has answered yet.
        verdict = ari.await_verdict(handoff_id=handoff, timeout=5)
        print(f"${amount}: {verdict}")
        if verdict != "approve":
            print("why:", ari.notes(agent_id="ari", case_id=CASE)["feedback"][0].text)
    ari.reflect(case_id=CASE)
    print("next case, Ari knows:", ari.notes(agent_id="ari", case_id=OTHER, query="refund")["lessons"][0].text)
