"""The prompts of ouroboros_agreement.py: a fixed part of four public sets.

DATA/prompts holds humaneval.jsonl.gz (prompt), mbpp.jsonl.gz (text,
test_list), gsm8k_test.jsonl.gz (question) and specbench_question.jsonl.gz
(category, turns).
"""
import gzip
import json
import pathlib

TASKS = {"HumanEval": "humaneval.jsonl.gz", "MBPP": "mbpp.jsonl.gz",
         "GSM8K": "gsm8k_test.jsonl.gz",
         "Summarization": "specbench_question.jsonl.gz"}
# A longer article would only make passes over prompts longer.
ARTICLE_CHARACTERS = 2000


def text_of(task, row):
    """What a model that only continues text is given."""
    if task == "HumanEval":
        return row["prompt"]
    if task == "MBPP":
        tests = "\n".join(row["test_list"])
        return f'"""\n{row["text"]}\n{tests}\n"""\n'
    if task == "GSM8K":
        return f"Question: {row['question']}\nAnswer:"
    return row["turns"][0][:ARTICLE_CHARACTERS] + "\nSummary:"


def prompts(data, task, count):
    """`count` prompts of a task, evenly spread over its set."""
    with gzip.open(pathlib.Path(data) / "prompts" / TASKS[task], "rt",
                   encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    if task == "Summarization":
        rows = [row for row in rows if row["category"] == "summarization"]
    return [text_of(task, rows[(2 * i + 1) * len(rows) // (2 * count)])
            for i in range(count)]


def write(path, texts, chat):
    """A file of --prompts: texts, or with `chat` the user's messages."""
    with open(path, "w", encoding="utf-8") as file:
        for text in texts:
            row = ({"messages": [{"role": "user", "content": text}]} if chat
                   else {"prompt": text})
            file.write(json.dumps(row) + "\n")
