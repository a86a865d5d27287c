//! Ordinary shell scripts just work behind the wall.

use functional::{completed, outcome, run_json, run_plain};
use harness::{Build, Palisade, users};

fn prints(code: &str, expected: &str) {
    for user in users() {
        assert_eq!(completed(user, "bash", code, &[]), expected, "as {user:?}\n{code}");
    }
}

#[test]
fn pipes_and_their_status_work() {
    prints("seq 100 | grep 7 | sort -rn | head -2; echo ${PIPESTATUS[@]}", "97\n87\n0 0 0 0\n");
    prints("set -o pipefail; false | true; echo $?", "1\n");
    prints("yes | head -1", "y\n");
}

#[test]
fn arrays_and_assoc_arrays_work() {
    prints("a=(x 'y z' w); a+=(v); echo ${#a[@]} \"${a[1]}\" \"${a[@]:2}\"", "4 y z w v\n");
    prints(
        "declare -A m=([k]=1 [j]=2); m[l]=3; for k in $(printf '%s\\n' \"${!m[@]}\" | sort); do echo -n $k${m[$k]}; done",
        "j2k1l3",
    );
    prints("mapfile -t l < <(printf 'a\\nb\\n'); echo ${#l[@]} ${l[1]}", "2 b\n");
}

#[test]
fn here_documents_and_here_strings_work() {
    prints(
        "x=5; cat <<E\nvalue $x $((x+1))\nE\ncat <<'E'\nraw $x\nE\ntr a b <<< banana",
        "value 5 6\nraw $x\nbbnbnb\n",
    );
    // Larger than a pipe holds: the shell uses a file.
    prints("x=$(head -c 200000 /dev/zero | tr '\\0' x); wc -c <<< $x", "200001\n");
}

#[test]
fn process_substitution_works() {
    prints(
        "diff <(echo a) <(echo b) | head -1; echo c > >(cat); wait; paste <(seq 2) <(seq 3 4)",
        "1c1\nc\n1\t3\n2\t4\n",
    );
}

#[test]
fn background_jobs_and_wait_work() {
    let code = "for i in 3 1 2; do (until [ -e turn$i ]; do sleep 0.01; done; echo $i; : > turn$((i + 1))) & done\n\
                : > turn1; wait; echo all";
    prints(code, "1\n2\n3\nall\n");
    prints("(exit 4) & wait $!; echo $?; sleep 100 & kill %1; wait %1; echo $?", "4\n143\n");
}

#[test]
fn traps_work() {
    prints("trap 'echo bye' EXIT; echo hi", "hi\nbye\n");
    prints("trap 'echo caught' USR1; kill -USR1 $$; echo after", "caught\nafter\n");
    prints("trap 'echo error on $LINENO' ERR; false; echo go on", "error on 1\ngo on\n");
    for user in users() {
        let result = run_json(user, "bash", "trap 'echo bye' EXIT\nexit 5", &[]);
        assert_eq!((&result["stdout"], &result["exit_code"]), (&"bye\n".into(), &5.into()), "{result:#}");
    }
}

#[test]
fn strict_mode_ends_at_the_first_error() {
    for user in users() {
        let result = run_json(user, "bash", "set -euo pipefail\necho one\nfalse | true\necho two", &[]);
        assert_eq!(
            (outcome(&result), &result["stdout"], &result["exit_code"]),
            ("failed", &"one\n".into(), &1.into())
        );
        let result = run_json(user, "bash", "set -u\necho $undefined\necho two", &[]);
        assert_eq!((outcome(&result), &result["stdout"]), ("failed", &"".into()), "{result:#}");
        assert!(result["stderr"].as_str().unwrap().contains("undefined"));
        assert!(result["stderr"].as_str().unwrap().contains("line 2"), "{result:#}");
    }
}

#[test]
fn a_syntax_error_is_told_with_its_line() {
    for user in users() {
        let result = run_json(user, "bash", "echo a\nif true; then\necho b\n", &[]);
        assert_eq!((outcome(&result), &result["exit_code"]), ("failed", &2.into()), "{result:#}");
        let stderr = result["stderr"].as_str().unwrap();
        assert!(
            stderr.contains("syntax error") && stderr.contains("main.sh") && !stderr.contains("driver"),
            "{stderr}"
        );
    }
}

#[test]
fn positional_parameters_work() {
    for user in users() {
        let code = "echo $# \"$1\" \"${@: -1}\"; shift; echo \"$*\"; set -- q; echo $1; basename \"$0\"";
        let ended = Palisade::new(Build::Real, user, &["run", "bash", "-c", code, "a b", "c", "d e"]).end();
        assert_eq!(ended.stdout, "3 a b d e\nc d e\nq\nmain.sh\n", "{}", ended.stderr);
    }
}

#[test]
fn variables_are_strings_arrays_and_assoc_arrays() {
    let options = [
        "--var",
        "s=\"a  b 'q' $x\"",
        "--var",
        "n=5",
        "--var",
        "t=true",
        "--var",
        "l=[1,\"two words\",\"\"]",
        "--var",
        "m={\"k k\":\"v\",\"u\":\"ü\"}",
        "--var",
        "deep=[[1],{\"a\":2}]",
        "--var",
        "none=null",
    ];
    let code = "echo \"$s|$((n+1))|$t|${#l[@]}|${l[1]}|${m[k k]}|${m[u]}|$deep|${none-unset}|${none+set}\"";
    for user in users() {
        assert_eq!(
            completed(user, "bash", code, &options),
            "a  b 'q' $x|6|true|3|two words|v|ü|[[1],{\"a\":2}]||set\n"
        );
    }
}

#[test]
fn coprocesses_work() {
    prints(
        "coproc C { while read -r x; do echo \"got $x\"; done; }; echo hi >&${C[1]}; read -r y <&${C[0]}; echo $y",
        "got hi\n",
    );
}

#[test]
fn reading_standard_input_works() {
    for user in users() {
        let code = "read -r first; echo \"1: $first\"; while IFS=, read -r a b; do echo \"$b $a\"; done; cat";
        let ended = Palisade::new(Build::Real, user, &["run", "bash", "-c", code])
            .stdin("grüße\nx,1\ny,2\n".as_bytes())
            .end();
        assert_eq!(ended.stdout, "1: grüße\n1 x\n2 y\n", "{}", ended.stderr);
        assert_eq!(run_plain(user, "bash", "read -r x || echo end", &[]).stdout, "end\n");
    }
}

#[test]
fn common_tools_are_there() {
    prints("echo b,a | cut -d, -f2 | sed s/a/x/ | awk '{print $1 $1}'", "xx\n");
    prints(
        "mkdir -p d/e; touch d/e/f; find d -type f | xargs ls; tar cf t.tar d && tar tf t.tar | wc -l; du -s d >/dev/null && echo du",
        "d/e/f\n3\ndu\n",
    );
    prints(
        "date -u -d @0 +%F; TZ=Asia/Tokyo date -d @0 +%H; mktemp | grep -c ^/tmp/; id -un; hostname 2>/dev/null || uname -n; pwd",
        "1970-01-01\n09\n1\nagent\npalisade\n/workspace\n",
    );
    prints(
        "ps -o pid= -p $$ >/dev/null && echo ps; kill -0 $$ && echo alive; test -w /dev/null && test -r /dev/urandom && echo devices",
        "ps\nalive\ndevices\n",
    );
    prints("exec 5<>/dev/tcp/127.0.0.1/1 || echo refused", "refused\n");
}

#[test]
fn a_script_may_replace_itself() {
    prints("exec echo replaced", "replaced\n");
    prints(
        "f() { local x=1; echo $x; }; f; source <(echo 'g() { echo sourced; }'); g; eval 'echo evaluated'",
        "1\nsourced\nevaluated\n",
    );
    prints(
        "exec 3>file; echo three >&3; exec 3>&-; cat file; printf '%(%Y)T\\n' 0; echo $((2**40)) {1..3}",
        "three\n1970\n1099511627776 1 2 3\n",
    );
}

#[test]
fn the_system_is_named_and_the_usual_places_are_there() {
    prints("(. /etc/os-release; [ -n \"$ID\" ] && echo named)", "named\n");
    prints("echo x > /mnt/data/f; cat /workspace/f; readlink /mnt/data", "x\n/workspace\n");
}

#[test]
fn the_limits_of_the_shell_are_told_without_errors() {
    for user in users() {
        let result = run_json(user, "bash", "ulimit -a > /dev/null; ulimit -c; ulimit -s", &[]);
        assert_eq!((&result["stdout"], &result["stderr"]), (&"0\n8192\n".into(), &"".into()), "{result:#}");
        let result = run_json(user, "bash", "ulimit -c unlimited", &[]);
        assert_eq!(outcome(&result), "failed", "{result:#}");
    }
}
