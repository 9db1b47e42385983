"""That papers.md and the section of docs/results.md fit the JSON, and that the check sees
what does not.

Needs no data and no binary: only what is committed.
"""
import argparse
import contextlib
import copy
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import crest_lookups
import papers_all
import papers_check
import papers_report
import papers_tables
import progress
import provenance
import report_table


class Committed(unittest.TestCase):
    def test_fits_together(self):
        self.assertEqual(
            papers_check.faults(papers_check.read(papers_report.RESULTS)), [])


class All(unittest.TestCase):
    def test_every_script_takes_its_flags(self):
        """Each script's own parser reads what it would be given."""
        args = argparse.Namespace(
            foretoken="build/release/bin/foretoken", data="data", again=True,
            python_corpus=["sources"], work="work")
        names = set()
        for script, *flags in papers_all.commands(args):
            names.add(script)
            done = subprocess.run(
                [sys.executable, "-B", script, *flags, "--no-such-flag"],
                capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2, script)
            self.assertIn("unrecognized arguments: --no-such-flag\n",
                          done.stderr, script)
        self.assertEqual(names, {
            "crest_report.py", "crest_lookups.py", "ouroboros_report.py",
            "draft_kv_report.py", "ouroboros_agreement.py",
            "speedup_report.py"})


class Check(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.committed = papers_check.read(papers_report.RESULTS)

    def faults_after(self, change):
        damaged = copy.deepcopy(self.committed)
        change(damaged)
        return "\n".join(papers_check.faults(damaged))

    def test_a_changed_number_in_the_markdown_is_seen(self):
        # 3.48 stands in the JSON, in another place.
        for wrong in ("9.87", "3.48"):
            def change(committed, wrong=wrong):
                text = committed["files"]["papers.md"]
                committed["files"]["papers.md"] = text.replace(
                    "| 5.19† ", f"| {wrong}† ")
                self.assertNotEqual(text, committed["files"]["papers.md"])
            self.assertIn("papers.md: line", self.faults_after(change))

    def test_a_changed_number_in_both_is_seen(self):
        def change(committed):
            files = committed["files"]
            report = json.loads(files["papers.json"])
            report["papers"][1]["tables"][1]["rows"][0][1] = [9.87, 2]
            files["papers.json"] = report_table.report_json(report)
            files["papers.md"] = report_table.markdown(report)
        self.assertIn("papers.json: line", self.faults_after(change))

    def test_a_changed_measurement_is_seen(self):
        def change(committed):
            runs = committed["sources"]["runs"]
            runs["n-gram trie, as published"]["categories"]["rag"][
                "accept_length"] = 5.2
        self.assertIn("papers.json", self.faults_after(change))

    def test_wrong_numbers_in_the_readme_are_seen(self):
        # All but the first stand in the JSON, in other places.
        for right, wrong in (
                ("5.19† | 1.75 |", "9.87† | 1.75 |"),
                ("5.19† | 1.75 |", "5.19† | 3.28 |"),
                ("2.39† | 3.13 |", "3.13 | 2.39† |"),
                ("24.7 %; 12.3 %", "31.6 %; 24.2 %"),
                ("| 0.06, demo pair", "| 1.84, demo pair"),
                ("8 to 14 or 15† ms", "8 to 32† ms"),
                ("2.58 and 2.88,", "2.58,"),
                ("0.90 to 1.10", "0.30 to 1.10")):
            self.assertIn(right, self.committed["readme"])
            def change(committed, right=right, wrong=wrong):
                committed["readme"] = committed["readme"].replace(right, wrong)
            self.assertIn("docs/results.md, Against the papers: line",
                          self.faults_after(change), wrong)

    def test_a_missing_readme_section_is_seen(self):
        def change(committed):
            committed["readme"] = ""
        self.assertIn("docs/results.md, Against the papers: no such section",
                      self.faults_after(change))


class Verdicts(unittest.TestCase):
    """What the text says of measured numbers follows them."""

    @classmethod
    def setUpClass(cls):
        cls.committed = papers_check.read(papers_report.RESULTS)

    def drawn_after(self, change):
        sources = copy.deepcopy(self.committed["sources"])
        change(sources)
        return dict(papers_tables.outputs(sources))["papers.md"]

    def test_the_best_single_length_is_the_measured_one(self):
        def change(sources):
            for key, run in sources["crest"].items():
                if "/crest/only2/rest/" in key:
                    for one in run["sets"].values():
                        one["accept_length"] = 3.0
        self.assertIn("Ours: n = 1, the best in every column",
                      self.drawn_after(lambda sources: None))
        self.assertIn("Ours: n = 2, the best in every column",
                      self.drawn_after(change))

    def test_the_order_of_tasks_is_the_measured_one(self):
        def change(sources):
            sources["runs"]["n-gram trie, as published"]["categories"]["rag"][
                "accept_length"] = 5.2
        self.assertIn("come out in the opposite order",
                      self.drawn_after(lambda sources: None))
        self.assertIn("come out in the same order", self.drawn_after(change))

    def test_start_lengths_that_do_not_fall_are_not_said_to(self):
        def change(sources):
            sources["crest"]["chat/rest:max_n=8/100"]["sets"]["mtbench"][
                "accept_length"] = 3.0
        self.assertIn("Accept length does not fall", self.drawn_after(change))

    def test_look_ups_say_what_left_the_page_cache(self):
        def change(how):
            def set_(sources):
                for key, run in sources["lookups"].items():
                    if "/cold/" in key:
                        run["dropped"] = how
            return set_
        self.assertIn("the whole page cache was dropped",
                      self.drawn_after(change("drop_caches")))
        self.assertIn("the datastore's files were taken out",
                      self.drawn_after(change("posix_fadvise")))

    def test_look_ups_that_were_not_measured_are_said_not_to_be(self):
        def change(sources):
            sources["lookups"] = {}
        self.assertIn("Not measured: `tests/lab/crest_lookups.py`",
                      self.drawn_after(change))

    def test_a_checked_number_has_no_mark(self):
        def change(sources):
            sources["published"]["ngram_trie"]["sources"]["table_1"][
                "checked"] = True
        self.assertIn("| RAG | 5.19 |", self.drawn_after(change))


class Numbers(unittest.TestCase):
    def test_of_a_cell_have_its_digits_and_its_mark(self):
        self.assertEqual(report_table.cell([1.7531, 2]), "1.75")
        self.assertEqual(report_table.cell([1.7531, 2, "†"]), "1.75†")

    def test_a_ratio_over_a_range_is_to_its_nearest_end(self):
        self.assertEqual(report_table.ratio([2, 4], 8), 2)
        self.assertEqual(report_table.ratio([2, 4], 1), 0.5)
        self.assertEqual(report_table.ratio([2, 4], 3), 1)
        self.assertEqual(report_table.ratio(2, 3), 1.5)


class Helpers(unittest.TestCase):
    def test_a_percentile_is_a_sample_that_as_many_do_not_exceed(self):
        samples = [5, 1, 4, 2, 3]
        self.assertEqual(crest_lookups.percentile(samples, 0.5), 3)
        self.assertEqual(crest_lookups.percentile(samples, 0.6), 3)
        self.assertEqual(crest_lookups.percentile(samples, 0.61), 4)
        self.assertEqual(crest_lookups.percentile(samples, 0.99), 5)
        self.assertEqual(crest_lookups.percentile([7], 0.5), 7)

    def test_a_summary_is_over_all_rounds(self):
        self.assertEqual(
            crest_lookups.summary([[1, 2], [3, 4, 5]]),
            {"p50_us": 3, "p95_us": 5, "p99_us": 5, "statements": 5,
             "round_p50_us": [1, 4]})

    def test_the_commit_is_the_one_that_the_binary_names(self):
        with tempfile.NamedTemporaryFile("w", suffix=".sh") as binary:
            binary.write("#!/bin/sh\necho 'foretoken 0.1.0 (commit 0a1b2c-dirty;"
                         " services)'\n")
            binary.flush()
            os.chmod(binary.name, 0o700)
            copied = shutil.copy(binary.name, binary.name + ".run")
            self.addCleanup(os.remove, copied)
            self.assertEqual(provenance.commit_of(copied), "0a1b2c-dirty")
        self.assertEqual(provenance.commit_of("true"), "unknown")

    def test_progress_counts_what_has_ended(self):
        with contextlib.redirect_stderr(io.StringIO()) as shown:
            with progress.Progress("title", 2) as bar:
                bar.begin("one")
                bar.end("one")
        self.assertIn("0/2", shown.getvalue().splitlines()[0])
        self.assertIn("1/2", shown.getvalue().splitlines()[1])


class Steps(unittest.TestCase):
    def test_a_kept_result_is_not_measured_again(self):
        class Args:
            data, foretoken = "nowhere", "nothing"
        runs = json.loads(papers_report.RUNS.read_text(encoding="utf-8"))
        measure = papers_report.Measure(Args, runs)
        measure.plan()
        self.assertEqual([key for key, _ in measure.steps], [])
        measure = papers_report.Measure(Args, {})
        measure.plan()
        self.assertEqual({key for key, _ in measure.steps}, set(runs))


if __name__ == "__main__":
    unittest.main()
