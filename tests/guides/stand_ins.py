"""The names that documents leave to their readers, as small stand-ins, and the few words that are read differently."""

import re

#: Import lines name the packages whose calls the documents show; ours have the same calls below these names.
IMPORTS = [
    (re.compile(r"^from openintent\b", re.M), "from tenure"),
    (re.compile(r"^from conductor\.client\b", re.M), "from tenure.conductor"),
]

#: Shell functions: nothing really sleeps, and what goes on goes on twice.
SHELL = """
sleep() { echo "slept $1" >> "$WORLD/slept"; }
twice() { echo x >> "$WORLD/$1"; [ "$(wc -l < "$WORLD/$1")" -le 2 ]; }
migration_in_progress() { twice migration; }
working() { twice working; }
process_issue() { echo "$1" >> "$WORLD/processed"; }
"""


def python(code):
    """Python code of a document as it is run here."""
    for pattern, ours in IMPORTS:
        code = pattern.sub(ours, code)
    return code


#: What the task of a name is given.
INPUTS = {
    "long_processing_task": ["dataset_id"],
    "ml_training": ["dataset"],
    "batch_processor": ["batch_id"],
    "quick_validation": ["data"],
    "my_task": ["input_data", "data"],
    "video_encoding": ["video_id"],
    "data_migration": ["source"],
    "retry_aware_task": ["data"],
    "wait_for_approval": ["request_id"],
    "bulk_email_sender": ["campaign_id"],
    "ml_model_training": ["config"],
    "resize": ["path"],
    "count": ["total"],
}


class Thing:
    """A model, a video, a training result: whatever has an id."""

    id, accuracy = "m-1", 0.9


CALLBACK = re.compile(r"callback_after_seconds=(\d+)")


def faster(code):
    """Pauses between two polls are a second here: what is promised is that they happen, and how the work goes on."""
    return CALLBACK.sub("callback_after_seconds=1", code)


def strip_comments(text):
    """JSON of documents has comments; JSON has none."""
    return re.sub(r"//.*", "", text)
