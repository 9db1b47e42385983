"""results/draft_kv.md against the JSON that it is made of."""
import json
import unittest

import draft_kv_report as report


class DraftKvReportTest(unittest.TestCase):
    def setUp(self):
        self.results = json.loads(
            (report.RESULTS / "draft_kv.json").read_text())

    def test_the_markdown_is_what_the_json_gives(self):
        self.assertEqual(report.render(self.results),
                         (report.RESULTS / "draft_kv.md").read_text())

    def test_a_changed_count_is_seen(self):
        row = self.results["pairs"]["demo"]["rows"][0]
        row["rows"] += row["rounds"]
        self.assertNotEqual(report.render(self.results),
                            (report.RESULTS / "draft_kv.md").read_text())

    def test_long_drafts_have_two_thirds_of_the_rows_at_most(self):
        for pair in self.results["pairs"].values():
            rows = {row["mode"]: row for row in pair["rows"]}
            for gamma in (5, 12):
                row = rows["draft_model:gamma=%d" % gamma]
                self.assertLessEqual(3 * row["rows"], 2 * row["rows_again"])

    def test_a_spread_has_its_median_and_ends(self):
        self.assertEqual(report.spread([0.4, 0.5, 0.75]),
                         "0.50 (0.40 to 0.75)")


if __name__ == "__main__":
    unittest.main()
