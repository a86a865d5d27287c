//! Ordinary Python programs just work behind the wall: processes, threads, files, sockets, time, text.

use functional::{completed, outcome, run_json};
use harness::users;

/// Runs for every user; each program checks itself and prints `ok` last.
fn works(code: &str) {
    for user in users() {
        let out = completed(user, "python", code, &["--timeout", "60s"]);
        assert!(out.ends_with("ok\n"), "as {user:?}: {out:?}\n{code}");
    }
}

#[test]
fn what_runs_at_the_end_runs_to_its_end() {
    const CODE: &str = "import atexit, threading, time, sys\n\
class Last:\n    def __del__(self): print('let go')\n\
kept = Last()\n\
atexit.register(lambda: print('at exit', 'x' * 50000 == 'x' * 50000))\n\
written = threading.Event()\n\
threading.Thread(target=lambda: (written.wait(), time.sleep(0.05), print('thread'))).start()\n\
sys.stdout.write('no newline')\n\
written.set()\n\
sys.exit(7)";
    for user in users() {
        let ended = functional::run_json(user, "python", CODE, &[]);
        assert_eq!(ended["stdout"], "no newlinethread\nat exit True\nlet go\n", "as {user:?}: {ended:#}");
        assert_eq!(ended["exit_code"], 7);
    }
}

#[test]
fn a_pool_of_forked_processes_works() {
    works(
        "import multiprocessing as m\ndef f(x): return x * x\nwith m.get_context('fork').Pool(3) as p:\n    \
         assert p.map(f, range(50)) == [x * x for x in range(50)]\nprint('ok')",
    );
}

#[test]
fn a_pool_of_spawned_processes_works() {
    works(
        "import multiprocessing as m\ndef f(x): return x * x\nif __name__ == '__main__':\n    \
         with m.get_context('spawn').Pool(2) as p: assert p.map(f, range(9)) == [x * x for x in range(9)]\n    print('ok')",
    );
}

#[test]
fn a_forkserver_works() {
    works(
        "import multiprocessing as m\ndef f(q): q.put('x' * 100_000)\nif __name__ == '__main__':\n    \
         c = m.get_context('forkserver'); q = c.Queue(); p = c.Process(target=f, args=(q,)); p.start()\n    \
         assert len(q.get(timeout=30)) == 100_000\n    p.join(); assert p.exitcode == 0\n    print('ok')",
    );
}

#[test]
fn executors_of_threads_and_processes_work() {
    works(
        "import concurrent.futures as c\nwith c.ThreadPoolExecutor(8) as e: assert sum(e.map(len, ['ab'] * 99)) == 198\n\
         with c.ProcessPoolExecutor(2) as e: assert list(e.map(abs, [-1, -2])) == [1, 2]\nprint('ok')",
    );
}

#[test]
fn semaphores_locks_and_shared_values_work() {
    works(
        "import multiprocessing as m\ns = m.Semaphore(2); v = m.Value('i', 0); l = m.Lock()\n\
         def f():\n    with s:\n        for _ in range(100):\n            with l: v.value += 1\n\
         ps = [m.get_context('fork').Process(target=f) for _ in range(4)]\n[p.start() for p in ps]; [p.join() for p in ps]\n\
         assert v.value == 400\nprint('ok')",
    );
}

#[test]
fn shared_memory_works() {
    works(
        "from multiprocessing import shared_memory, Process\nm = shared_memory.SharedMemory(create=True, size=1 << 20)\n\
         def f(name):\n    s = shared_memory.SharedMemory(name=name); s.buf[7] = 42; s.close()\n\
         p = Process(target=f, args=(m.name,)); p.start(); p.join()\nassert m.buf[7] == 42\nm.close(); m.unlink()\nprint('ok')",
    );
}

#[test]
fn threads_and_signals_work() {
    works(
        "import threading, signal, os, time\nn = []\nts = [threading.Thread(target=n.append, args=(i,)) for i in range(20)]\n\
         [t.start() for t in ts]; [t.join() for t in ts]\nassert sorted(n) == list(range(20))\ngot = []\n\
         signal.signal(signal.SIGUSR1, lambda s, f: got.append(s))\nos.kill(os.getpid(), signal.SIGUSR1)\n\
         signal.setitimer(signal.ITIMER_REAL, 0.01); signal.signal(signal.SIGALRM, lambda s, f: got.append(s))\n\
         end = time.monotonic() + 10\nwhile len(got) < 2 and time.monotonic() < end: signal.sigtimedwait([], 0.01)\n\
         assert got == [signal.SIGUSR1, signal.SIGALRM], got\nprint('ok')",
    );
}

#[test]
fn subprocesses_with_pipes_work() {
    works(
        "import subprocess, sys\nassert subprocess.run(['tr', 'a-z', 'A-Z'], input='grüße', text=True, capture_output=True).stdout == 'GRüßE'\n\
         assert subprocess.check_output('echo a | wc -c', shell=True) == b'2\\n'\n\
         a = subprocess.Popen(['seq', '1000'], stdout=subprocess.PIPE); b = subprocess.run(['tail', '-1'], stdin=a.stdout, capture_output=True)\n\
         assert b.stdout == b'1000\\n'\nassert subprocess.run([sys.executable, '-c', 'exit(5)']).returncode == 5\n\
         try: subprocess.run(['sleep', '60'], timeout=0.1); assert False\nexcept subprocess.TimeoutExpired: pass\n\
         import os; assert os.system('exit 3') >> 8 == 3\nassert os.popen('echo hi').read() == 'hi\\n'\nprint('ok')",
    );
}

#[test]
fn asyncio_with_subprocesses_and_servers_works() {
    works(
        "import asyncio\nasync def main():\n    \
         p = await asyncio.create_subprocess_exec('cat', stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)\n    \
         assert (await p.communicate(b'x' * 200_000))[0] == b'x' * 200_000\n    \
         async def serve(r, w): w.write(await r.readline()); await w.drain(); w.close()\n    \
         s = await asyncio.start_server(serve, '127.0.0.1', 0); port = s.sockets[0].getsockname()[1]\n    \
         r, w = await asyncio.open_connection('localhost', port); w.write(b'hi\\n'); assert await r.readline() == b'hi\\n'\n    \
         w.close(); s.close()\n    await asyncio.to_thread(print, 'thread')\nasyncio.run(main())\nprint('ok')",
    );
}

#[test]
fn sockets_inside_the_sandbox_work() {
    works(
        "import socket, threading, http.server, urllib.request\na, b = socket.socketpair(); a.send(b'x'); assert b.recv(1) == b'x'\n\
         s = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\n\
         threading.Thread(target=s.serve_forever, daemon=True).start()\n\
         assert b'main.py' in urllib.request.urlopen(f'http://127.0.0.1:{s.server_port}/').read()\ns.shutdown()\n\
         u = socket.socket(socket.AF_UNIX); u.bind('/tmp/s'); u.listen(); c = socket.socket(socket.AF_UNIX); c.connect('/tmp/s')\n\
         d = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); d.bind(('127.0.0.1', 0)); d.sendto(b'y', d.getsockname()); assert d.recv(9) == b'y'\n\
         six = socket.socket(socket.AF_INET6); six.bind(('::1', 0))\n\
         assert socket.gethostbyname('localhost') == '127.0.0.1'\nassert socket.gethostname() == 'palisade'\nprint('ok')",
    );
}

#[test]
fn temporary_files_and_folders_work() {
    works(
        "import tempfile, os, shutil, pathlib\nassert tempfile.gettempdir() == '/tmp'\n\
         with tempfile.NamedTemporaryFile('w+') as f: f.write('x'); f.flush(); assert open(f.name).read() == 'x'\n\
         with tempfile.TemporaryDirectory() as d: (pathlib.Path(d) / 'a').mkdir(); shutil.make_archive(d + '/z', 'zip', d)\n\
         f = tempfile.TemporaryFile(); f.write(b'x' * 9); f.seek(0); assert len(f.read()) == 9\n\
         os.mkfifo('/tmp/p')\nif os.fork() == 0:\n    open('/tmp/p', 'w').write('through'); os._exit(0)\n\
         assert open('/tmp/p').read() == 'through'\nos.symlink('/tmp/p', 'l'); os.link('main.py', 'hard')\n\
         os.rename('hard', '/workspace/moved'); shutil.move('moved', '/tmp/moved'); os.chmod('/tmp/moved', 0o700)\n\
         import mmap; m = mmap.mmap(-1, 1 << 20); m[5] = 1\nprint('ok')",
    );
}

#[test]
fn text_of_every_kind_works() {
    works(
        "import sys, os, locale\nt = 'grüße 日本語 🎈 \\u202e'\nassert sys.stdout.encoding.lower() == 'utf-8' and sys.getfilesystemencoding() == 'utf-8'\n\
         open(t + '.txt', 'w').write(t); assert t + '.txt' in os.listdir() and open(t + '.txt').read() == t\n\
         assert locale.getpreferredencoding(False).lower() == 'utf-8'\nlocale.setlocale(locale.LC_ALL, '')\n\
         print(t); print(t, file=sys.stderr)\nopen(b'\\xff\\xfe', 'w').close(); assert os.fsencode(os.listdir('.')[0])\nprint('ok')",
    );
}

#[test]
fn time_zones_work() {
    works(
        "import zoneinfo, datetime, time, os\nb = datetime.datetime(2024, 7, 1, 12, tzinfo=zoneinfo.ZoneInfo('Europe/Berlin'))\n\
         assert b.utcoffset() == datetime.timedelta(hours=2)\nassert 'Asia/Tokyo' in zoneinfo.available_timezones()\n\
         os.environ['TZ'] = 'America/New_York'; time.tzset(); assert time.localtime(0).tm_hour == 19\n\
         assert abs(time.time() - os.stat('main.py').st_mtime) < 3600\nprint('ok')",
    );
}

#[test]
fn a_program_knows_where_it_is() {
    works(
        "import sys, os, __main__\nassert os.path.exists(__file__) and os.path.isabs(__file__) and 'import sys' in open(__file__).read()\n\
         assert __name__ == '__main__' and __main__.__file__ == __file__\n\
         assert sys.path[0] == os.path.dirname(__file__) == os.getcwd() == '/workspace', (sys.path, __file__, os.getcwd())\n\
         open('helper.py', 'w').write('answer = 42')\nimport helper; assert helper.answer == 42\n\
         assert sys.argv == [sys.argv[0]] and os.path.basename(sys.argv[0]) == 'main.py', sys.argv\n\
         import inspect\ndef f(): return 1\nassert 'return 1' in inspect.getsource(f)\nprint('ok')",
    );
}

#[test]
fn who_and_where_am_i_have_answers() {
    works(
        "import os, getpass, pwd, grp, pathlib, platform\nassert getpass.getuser() == 'agent' and os.getuid() == 1000 == os.getgid()\n\
         assert pwd.getpwuid(os.getuid()).pw_name == 'agent' and grp.getgrgid(os.getgid()).gr_name == 'agent'\n\
         assert pathlib.Path.home() == pathlib.Path('/home/agent'); (pathlib.Path.home() / '.config').mkdir()\n\
         assert (os.cpu_count() or 0) >= 1 and len(os.sched_getaffinity(0)) >= 1\nassert platform.system() == 'Linux'\n\
         os.getloadavg(); os.uname(); os.getpriority(0, 0); os.umask(0o22); os.getgroups()\nimport uuid, secrets; uuid.uuid4(); secrets.token_hex()\nprint('ok')",
    );
}

#[test]
fn databases_compression_and_libraries_in_c_work() {
    works(
        "import sqlite3, zlib, lzma, bz2, hashlib, ssl, ctypes, decimal, json, csv\n\
         d = sqlite3.connect('/workspace/x.db'); d.execute('pragma journal_mode=wal'); d.execute('create table t(a)')\n\
         d.executemany('insert into t values(?)', [(i,) for i in range(1000)]); d.commit(); assert d.execute('select sum(a) from t').fetchone() == (499500,)\n\
         for c in zlib, lzma, bz2: assert c.decompress(c.compress(b'x' * 999)) == b'x' * 999\n\
         hashlib.sha256(b'').hexdigest(); ssl.create_default_context(); assert ctypes.CDLL(None).getpid() > 0\n\
         assert ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 7)() == 7\nprint('ok')",
    );
}

#[test]
fn a_pseudo_terminal_works() {
    works(
        "import pty, os, subprocess\nm, s = pty.openpty(); assert os.isatty(s)\n\
         p = subprocess.Popen(['sh', '-c', 'test -t 0 && echo tty'], stdin=s, stdout=s, stderr=s, close_fds=True); p.wait()\n\
         assert b'tty' in os.read(m, 100)\nprint('ok')",
    );
}

#[test]
fn logging_and_its_end_work() {
    for user in users() {
        let code = "import logging, atexit, sys, warnings\nlogging.basicConfig(level='INFO'); logging.info('to stderr')\n\
                    atexit.register(lambda: print('at exit'))\nwarnings.warn('careful')\nsys.stdout.write('no newline at the end ')";
        let result = run_json(user, "python", code, &[]);
        assert_eq!(outcome(&result), "completed", "{result:#}");
        assert_eq!(result["stdout"], "no newline at the end at exit\n");
        let stderr = result["stderr"].as_str().unwrap();
        assert!(stderr.contains("INFO:root:to stderr") && stderr.contains("careful"), "{stderr}");
    }
}

#[test]
fn endless_recursion_is_an_error_of_python_not_a_crash() {
    for user in users() {
        let result = run_json(user, "python", "def f(n): return f(n + 1)\nf(0)", &[]);
        assert_eq!((outcome(&result), &result["exit_code"]), ("failed", &1.into()), "{result:#}");
        assert!(result["error"]["message"].as_str().unwrap().contains("RecursionError"), "{result:#}");
        assert_eq!(result["error"]["line"], 1, "{result:#}");
    }
}

#[test]
fn dataclasses_pickles_and_annotations_of_the_main_program_work() {
    works(
        "from __future__ import annotations\nimport dataclasses, pickle, typing, sys\n@dataclasses.dataclass\nclass P:\n    x: int\n    y: list[P]\n\
         assert pickle.loads(pickle.dumps(P(1, []))) == P(1, [])\nassert typing.get_type_hints(P)['x'] is int\n\
         assert sys.modules['__main__'].P is P\nassert __doc__ is None\nprint('ok')",
    );
}
