"""The projection of speed from counted passes, the plan of the counts, and that
what the tables say follows them."""
import copy
import unittest

import ouroboros_agreement as counting
import papers_agreement
import papers_check
import papers_report
import pass_projection

TIMES = {"rows": [1, 2, 4], "ms": [10.0, 11.0, 15.0]}


class Projection(unittest.TestCase):
    def test_between_and_beyond_measured_sizes_the_line_is_straight(self):
        self.assertEqual(pass_projection.pass_ms(TIMES, 1), 10)
        self.assertEqual(pass_projection.pass_ms(TIMES, 3), 13)
        self.assertEqual(pass_projection.pass_ms(TIMES, 6), 19)

    def test_a_pass_takes_no_longer_than_one_of_more_rows(self):
        disturbed = {"rows": [1, 2, 4], "ms": [30.0, 11.0, 15.0]}
        self.assertEqual(pass_projection.pass_ms(disturbed, 1), 11)
        self.assertEqual(pass_projection.pass_ms(disturbed, 3), 13)

    def test_a_bin_is_as_long_as_its_passes_one_by_one(self):
        passes = [2, 3, 3, 3]
        self.assertAlmostEqual(
            pass_projection.passes_ms(TIMES, [[2, len(passes), sum(passes)]]),
            sum(pass_projection.pass_ms(TIMES, rows) for rows in passes))

    def test_bins_have_no_measured_size_within_them(self):
        # The edges of row_counts.h.
        header = (counting.ROOT / "tests/lab/row_counts.h").read_text(
            encoding="utf-8")
        edges = header.split("kEdges = {", 1)[1].split("}", 1)[0]
        self.assertEqual([int(edge) for edge in edges.split(",")],
                         counting.TIMED_ROWS)

    def test_greedy_is_the_yardstick(self):
        times = {name: TIMES for name in ("7B", "68M")}
        greedy = {"tokens": 5, "target_bins": [[1, 5, 5]], "draft_bins": []}
        self.assertEqual(
            pass_projection.over_greedy(times, "7B, 68M", greedy), 1)

    def test_draft_passes_and_rows_cost(self):
        times = {"7B": TIMES, "68M": {"rows": [1, 2, 4], "ms": [1., 2., 4.]}}
        counts = {"tokens": 6, "target_bins": [[4, 2, 8]],
                  "draft_bins": [[2, 4, 8]]}
        self.assertEqual(pass_projection.over_greedy(
            times, "7B, 68M", counts), 60 / (2 * 15 + 4 * 2))
        self.assertEqual(pass_projection.over_greedy(
            times, "7B, 68M", counts, free=True), 60 / (2 * 10 + 4 * 1))


class Plan(unittest.TestCase):
    def test_every_count_has_a_key_of_its_own(self):
        keys = [batch.key("demo", mode) for batch in counting.plan()
                for mode in batch.modes]
        self.assertEqual(len(keys), len(set(keys)))

    def test_a_context_number_is_that_of_requests_in_a_row(self):
        tasks = [[f"{name}{i}" for i in range(counting.MIXED_PROMPTS)]
                 for name in "ab"]
        self.assertEqual(counting.in_turn(tasks, 1)[:4],
                         ["a0", "b0", "a1", "b1"])
        self.assertEqual(counting.in_turn(tasks, 4)[:6],
                         ["a0", "a1", "a2", "a3", "b0", "b1"])
        for number in counting.CONTEXT_NUMBERS:
            self.assertEqual(sorted(counting.in_turn(tasks, number)),
                             sorted(tasks[0] + tasks[1]))


class Committed(unittest.TestCase):
    """What was counted, and what is said of it."""

    @classmethod
    def setUpClass(cls):
        cls.sources = papers_check.read(papers_report.RESULTS)["sources"]
        cls.own = papers_agreement.Counts(cls.sources["agreement"])

    def test_drafts_agree_as_often_as_their_level_says(self):
        self.assertTrue(self.own.levels())
        for level in self.own.levels():
            for task in counting.TASKS:
                of = self.own.mode(task, level, counting.PUBLISHED)
                self.assertAlmostEqual(papers_agreement.agreement(of),
                                       float(level), delta=0.01)

    def test_an_effect_is_named_only_beyond_the_noise(self):
        def pair(with_, without):
            return [{"tokens": tokens, "rounds": 100}
                    for tokens in (with_, without)]
        def ratio(pairs):
            return papers_agreement.ratio_over(pairs, papers_agreement.length)
        noisy = ratio([pair(110, 100), pair(100, 110), pair(104, 100),
                       pair(100, 104)])
        self.assertAlmostEqual(noisy[0], 1)
        # By hand: t(3) 3.182 times sqrt(sum of squared logs / 3 / 4).
        self.assertAlmostEqual(noisy[2], 1.1433, delta=0.0001)
        self.assertEqual(papers_agreement.effect(*noisy), "none to be seen")
        steady = [pair(110, 100), pair(111, 100), pair(109, 100),
                  pair(110, 100)]
        self.assertEqual(papers_agreement.effect(*ratio(steady)), "up")
        turned = [[without, with_] for with_, without in steady]
        self.assertEqual(papers_agreement.effect(*ratio(turned)), "down")

    def test_the_tables_of_further_counts_are_drawn(self):
        titles = " ".join(table["title"] for table in
                          papers_agreement.agreement_tables(self.sources))
        for title in ("on further prompts", "Outputs of 512 tokens",
                      "warm start by context number", "SmolLM2-135M"):
            self.assertIn(title, titles)

    def test_the_verdict_follows_the_counts(self):
        times = self.sources["pass_times"]
        damaged = copy.deepcopy(self.sources["agreement"])
        before = papers_agreement.verdict(self.own, times)
        for key, of in damaged.items():
            if key.endswith("/" + counting.PUBLISHED):
                of["rounds"] = of["tokens"]  # as if nothing was accepted
        after = papers_agreement.verdict(
            papers_agreement.Counts(damaged), times)
        self.assertIn(" in 0 of", after[0])
        self.assertNotEqual(before[0], after[0])


if __name__ == "__main__":
    unittest.main()
