"""That speedup.md is what its JSON gives, and how ratios are drawn.

Needs no data and no binary.
"""
import itertools
import json
import pathlib
import shutil
import tempfile
import unittest

import speedup_report
import speedup_tables


TURNS = itertools.count()


def turn(question, task, plain, own, prefill=0.0):
    return {"turn": next(TURNS), "id": question, "category": task,
            "length": 12, "tokens": 12, "prefill": prefill, "plain": plain,
            "variants": [{"tokens": 12, "rounds": 4, "nodes": 8,
                          "speculative": own, "indexing": own / 8,
                          "drafting": own / 4, "verifying": own / 2}]}


class Committed(unittest.TestCase):
    def test_fits_its_json(self):
        self.assertEqual(speedup_tables.faults(speedup_report.RESULTS), [])

    def test_a_changed_number_is_seen(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            for name in ("speedup.md", "speedup.json", "papers_published.json"):
                shutil.copy(speedup_report.RESULTS / name, folder)
            text = (folder / "speedup.md").read_text(encoding="utf-8")
            ratio = text[text.index(" | ", text.index("prompt lookup |")) + 3:]
            ratio = ratio[:4]
            (folder / "speedup.md").write_text(
                text.replace(ratio, "9.99", 1), encoding="utf-8")
            self.assertIn("9.99", speedup_tables.faults(folder)[0])


class Ratios(unittest.TestCase):
    def test_sums_of_seconds_not_means_of_ratios(self):
        turns = [turn("a", "qa", 9.0, 3.0, 1.0), turn("b", "qa", 1.0, 2.0, 1.0)]
        of = speedup_tables.summary(turns, 0)["tasks"]["qa"]
        self.assertEqual(of["decode"][0], 2.0)
        self.assertEqual(of["with_prefill"][0], 12.0 / 7.0)
        self.assertEqual(of["accept_length"], 3.0)
        self.assertEqual(of["rows"], 3.0)
        self.assertEqual(of["indexing"], 0.125)
        self.assertEqual(of["drafting"], 0.25)
        self.assertEqual(of["verifying"], 0.5)
        self.assertEqual(of["tokens_per_second"], 24 / 5.0)
        low, high = of["decode"][1:]
        self.assertEqual((low, high), (0.5, 3.0))

    def test_a_question_keeps_its_turns_together(self):
        turns = [turn("a", "mt_bench", 9.0, 3.0), turn("a", "mt_bench", 1.0, 2.0)]
        of = speedup_tables.summary(turns, 0)["mean"]
        self.assertEqual(of["decode"], [2.0, 2.0, 2.0])
        self.assertEqual(of["questions"], 1)
        self.assertEqual(of["turns"], 2)

    def test_the_mean_is_of_categories(self):
        turns = [turn("a", "qa", 4.0, 1.0), *[turn(f"b{i}", "rag", 2.0, 1.0)
                                              for i in range(9)]]
        of = speedup_tables.summary(turns, 0)["mean"]
        self.assertEqual(of["decode"][0], 3.0)

    def test_variants_by_name(self):
        header = {"variants": [{"name": "one"}]}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "turns.jsonl"
            path.write_text("\n".join(map(json.dumps, [
                header, turn("a", "qa", 2.0, 1.0)])) + "\n", encoding="utf-8")
            self.assertEqual(list(speedup_tables.summaries(path)), ["one"])
            twice = speedup_tables.summaries(path, path)["one"]["mean"]
            self.assertEqual((twice["turns"], twice["tokens"]), (1, 24))


class Windows(unittest.TestCase):
    def window(self):
        """Of 40 tokens 4 were decoded, by the variant 5 in two rounds."""
        return {"turn": 3, "id": "a", "category": "qa", "length": 40,
                "tokens": 4, "prefill": 0.0, "plain": 4.0,
                "variants": [{"tokens": 5, "rounds": 2, "nodes": 6,
                              "speculative": 3.0, "indexing": 1.0,
                              "drafting": 1.5, "verifying": 1.25}]}

    def test_a_window_stands_for_its_output(self):
        of = speedup_tables.summary([self.window()], 0)["mean"]
        # 40 seconds, and 1 for the prompt beside 2 for 5 of 40 tokens.
        self.assertEqual(of["decode"][0], 40.0 / 17.0)
        self.assertEqual(of["accept_length"], 2.5)
        self.assertEqual(of["rows"], 4.0)
        self.assertEqual(of["indexing"], 1.0 / 17.0)
        self.assertEqual(of["drafting"], 5.0 / 17.0)
        self.assertEqual(of["verifying"], 10.0 / 17.0)
        self.assertEqual(of["tokens_per_second"], 40.0 / 17.0)
        self.assertEqual(of["tokens"], 4)

    def test_long_outputs_weigh_more(self):
        short = turn("b", "qa", 12.0, 24.0)
        of = speedup_tables.summary([self.window(), short], 0)["mean"]
        self.assertEqual(of["decode"][0], 52.0 / 41.0)


class Verdict(unittest.TestCase):
    def variants(self, other_low):
        return {"auto": {"tasks": {"qa": {"decode": [1.5, 1.2, 1.8]}}},
                "auto, whole trees":
                {"tasks": {"qa": {"decode": [9.0, 8.0, 9.5]}}},
                "REST": {"tasks": {"qa": {"decode": [1.9, other_low, 2.0]}}}}

    def test_only_a_whole_interval_above_counts(self):
        told = speedup_tables.verdict("auto", self.variants(1.49), ["qa"])
        self.assertIn("No other mode", told)
        told = speedup_tables.verdict("auto", self.variants(1.51), ["qa"])
        self.assertEqual(told, "Wholly above *auto*: REST on question "
                               "answering.")


if __name__ == "__main__":
    unittest.main()
