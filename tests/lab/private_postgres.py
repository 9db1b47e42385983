"""A PostgreSQL server in a folder of its own, reached over a Unix socket.

    with private_postgres.Server() as server:
        subprocess.run(..., env={"FORETOKEN_POSTGRES_URL": server.url})
        server.restart(shared_buffers="16MB")

As root the server runs as the user `postgres`, which it insists on.
"""
import os
import pathlib
import shutil
import subprocess
import tempfile


def _programs():
    """The folder of the newest installed server's programs, or None."""
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"),
                   key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


def available():
    return _programs() is not None


class Server:
    def __enter__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="private-pg-"))
        self.programs = _programs()
        self.url = f"host={self.folder} user=postgres dbname=postgres"
        if os.getuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
        try:
            self._run("initdb", "-D", self.folder / "data", "-A", "trust",
                      "-U", "postgres", "--no-sync", "--encoding=UTF8",
                      "--locale=C")
            self._start({})
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        return self

    def __exit__(self, *error):
        try:
            self._run("pg_ctl", "-D", self.folder / "data", "-m", "immediate",
                      "-w", "stop")
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def restart(self, **settings):
        """Stops the server, all its data on disk, and starts it with these."""
        self._run("pg_ctl", "-D", self.folder / "data", "-m", "fast", "-w",
                  "stop")
        self._start(settings)

    def query(self, sql):
        """The columns of the first row."""
        return self.script(sql)[0].split("\t")

    def script(self, text):
        """The lines that psql prints for statements and its own commands."""
        done = subprocess.run(
            ["psql", self.url, "-AtqX", "-F", "\t", "-v", "ON_ERROR_STOP=1"],
            input=text, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    def _start(self, settings):
        given = " ".join(f"-c {name}={value}"
                         for name, value in settings.items())
        self._run("pg_ctl", "-D", self.folder / "data", "-w", "-l",
                  self.folder / "log", "-o",
                  f"-k {self.folder} -c listen_addresses= {given}", "start")

    def _run(self, program, *words):
        command = [str(self.programs / program), *map(str, words)]
        if os.getuid() == 0:
            command = ["runuser", "-u", "postgres", "--", *command]
        subprocess.run(command, cwd="/", stdout=subprocess.DEVNULL, check=True)
