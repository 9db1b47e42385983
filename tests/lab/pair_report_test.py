"""That the tables of docs/ are what pair.json gives, and that the balance of the
machine explains the rounds that were measured.

Needs no data and no binary.
"""
import pathlib
import shutil
import tempfile
import unittest

import pair_report


class PairReportTest(unittest.TestCase):
    def setUp(self):
        self.report = pair_report.load(pair_report.RESULTS / "pair.json")

    def test_docs_are_what_the_json_gives(self):
        self.assertEqual(pair_report.faults(self.report), [])

    def test_a_changed_number_is_seen(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "docs").mkdir()
            for page, _ in pair_report.TABLES:
                shutil.copy(pair_report.ROOT / page, folder / page)
            page = folder / "docs/auto.md"
            text = page.read_text(encoding="utf-8")
            table = pair_report.parts(text, "points")[1]
            page.write_text(
                text.replace(table, table.replace("| `gamma=", "| `gamma=9")),
                encoding="utf-8")
            self.assertEqual(len(pair_report.faults(self.report, folder)), 1)

    def test_the_balance_explains_the_rounds(self):
        chains = self.report["chains"]
        self.assertGreaterEqual(len(chains), 6)
        for chain in chains:
            with self.subTest(chain=chain):
                off = pair_report.predicted(self.report, chain) / chain["ratio"]
                self.assertLess(abs(off - 1), 0.16)


class GainTest(unittest.TestCase):
    ENGINE = {"target": {"bytes": 1e9, "weights": 1e9},
              "draft": {"bytes": 1e8, "weights": 1e8}}

    def test_a_pass_is_bound_by_memory_or_by_arithmetic(self):
        target = self.ENGINE["target"]
        self.assertAlmostEqual(
            pair_report.pass_ms(target, 1, 100, 1e15, (1, 1)), 10.0, 3)
        self.assertAlmostEqual(
            pair_report.pass_ms(target, 64, 1e6, 1e12, (1, 0.5)), 128.0, 3)

    def test_chances_and_lengths(self):
        self.assertAlmostEqual(pair_report.accepted(0.5, 2), 1.75)
        self.assertAlmostEqual(
            pair_report.chance_of(pair_report.accepted(0.7, 5), 5), 0.7)

    def test_where_rows_are_free_only_draft_passes_cost(self):
        gained = pair_report.gain(self.ENGINE, 100, 1e15, (1, 1), 5, 4.0)
        self.assertAlmostEqual(gained, 4.0 * 10 / (10 + 5), 3)


if __name__ == "__main__":
    unittest.main()
