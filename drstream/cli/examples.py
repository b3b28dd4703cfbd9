"""Examples of each command, for its help. Tests run them in one folder, in this order, after `LOG` was made there."""

from __future__ import annotations

EXAMPLES: dict[str, list[tuple[str, str]]] = {
    "": [
        ("", "drstream demo"),
        ("", "drstream describe clicks.parquet"),
        ("", "drstream evaluate clicks.parquet --policy uniform --model ridge --crossfit 5"),
    ],
    "describe": [
        ("What does this log hold, and which column plays which role?", "drstream describe clicks.parquet"),
        ("Name the columns yourself.", "drstream describe clicks.parquet --context 'x*' --reward reward"),
    ],
    "audit": [
        ("Can this log be trusted?", "drstream audit clicks.parquet"),
        (
            "Look for copies of events, and for drift over time.",
            "drstream audit clicks.parquet --event-id id --time day",
        ),
    ],
    "plan": [
        (
            "How wide will intervals be on the whole log? A sample tells.",
            "drstream plan clicks.parquet --policy uniform --sample 0.5",
        ),
        (
            "How many replicates will a replay give?",
            "drstream plan clicks.parquet --policy epsilon-greedy --horizon 50",
        ),
    ],
    "evaluate": [
        ("The value of two policies.", "drstream evaluate clicks.parquet --policy uniform --policy constant:2"),
        (
            "Doubly robust, with a reward model that is fitted by fold.",
            "drstream evaluate clicks.parquet --policy new=softmax:weights.npz --model ridge --crossfit 5",
        ),
        (
            "The difference of two policies, with a paired interval.",
            "drstream evaluate clicks.parquet --policy new=softmax:weights.npz --policy uniform --compare new,uniform",
        ),
        ("A page to send to others.", "drstream evaluate clicks.parquet --policy uniform --report report.html"),
        (
            "Keep the sums of a day, for drstream merge. Print nothing but the result.",
            "drstream evaluate clicks.parquet --policy uniform --state monday.state --quiet",
        ),
        (
            "A table for other programs.",
            "drstream evaluate clicks.parquet --policy uniform --output - | head -3",
        ),
    ],
    "merge": [
        ("The result of several days, without their logs.", "drstream merge monday.state"),
        ("Exit with code 3 if the result should not be used.", "drstream merge monday.state --strict --json"),
    ],
    "fit": [
        (
            "A reward model from half of the log. evaluate then uses the other half.",
            "drstream fit clicks.parquet --model ridge --share 0.5 --output model.npz",
        ),
        ("A model of the logging policy.", "drstream fit clicks.parquet --model propensity -o propensity.npz"),
    ],
    "optimize": [
        (
            "Learn a policy on 70 % of the log; evaluate --policy policy.npz uses the rest.",
            "drstream optimize clicks.parquet --learner dlm:restarts=1,epochs=5 --output policy.npz",
        ),
    ],
    "replay": [
        (
            "What would a policy have earned that learns as it goes?",
            "drstream replay clicks.parquet --policy epsilon-greedy --horizon 50",
        ),
        (
            "Two learners, their learning curves in a file.",
            "drstream replay clicks.parquet --policy ucb1 --policy linucb:alpha=0.5 --horizon 50 --curve curves.csv",
        ),
    ],
    "convert": [
        ("An Arrow file, which is read faster.", "drstream convert clicks.parquet clicks.arrow"),
        ("A log from CSV.", "drstream convert clicks.csv from-csv.parquet --reward reward"),
    ],
    "warmup": [("Compile in an image, or before the tests of a CI job.", "drstream warmup")],
    "demo": [("A log with known truth, and three policies on it.", "drstream demo --rows 20000")],
}
