//! Compiled languages: a program is compiled once, from exactly what was given; nobody can change what others run.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use functional::{Chance, Live, SOON, is_quick, own_folder, readable_file, until};
use harness::{Build, Palisade, User, users};
use rustix::process::Signal;
use serde_json::{Value, json};

/// A compiler on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Language, and a program that prints what its first argument was.
const PROGRAMS: [(&str, &str); 6] = [
    ("c", "#include <stdio.h>\nint main(int n, char **a) { printf(\"%s\\n\", a[n - 1]); }"),
    ("cpp", "#include <cstdio>\nint main(int n, char **a) { std::puts(a[n - 1]); }"),
    (
        "go",
        "package main\nimport (\n\"fmt\"\n\"os\"\n)\nfunc main() { fmt.Println(os.Args[len(os.Args)-1]) }",
    ),
    ("rust", "fn main() { println!(\"{}\", std::env::args().last().unwrap()); }"),
    ("java", "class P { public static void main(String[] a) { System.out.println(a[a.length - 1]); } }"),
    ("csharp", "class P { static void Main(string[] a) { System.Console.WriteLine(a[a.Length - 1]); } }"),
];

/// Programs that print the text and the number they were given as variables.
const ECHOES: [(&str, &str); 6] = [
    ("c", "#include <stdio.h>\nint main(void) { printf(\"%ld|%s\", vars.number, vars.words); }"),
    ("cpp", "#include <iostream>\nint main() { std::cout << vars::number << '|' << vars::words; }"),
    ("go", "package main\nimport \"fmt\"\nfunc main() { fmt.Print(vars.number, \"|\", vars.words) }"),
    ("rust", "fn main() { print!(\"{}|{}\", vars::number, vars::words); }"),
    (
        "java",
        "class P { public static void main(String[] a) { System.out.print(Vars.number + \"|\" + Vars.words); } }",
    ),
    ("csharp", "class P { static void Main() { System.Console.Write(Vars.number + \"|\" + Vars.words); } }"),
];

/// What a run is given.
#[derive(Default, Clone)]
struct Given<'a> {
    options: Vec<String>,
    args: &'a [&'a str],
    env: Vec<(&'a str, &'a str)>,
}

/// A place to run from with a state directory of its own.
struct Place {
    user: User,
    state: PathBuf,
}

impl Place {
    fn new(user: User, label: &str) -> Self {
        let state = own_folder(user, &format!("compiled-{label}"));
        fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
        Self { user, state }
    }

    fn palisade(&self, arguments: &[&str]) -> Palisade {
        Palisade::new(Build::Real, self.user, arguments)
            .env("PALISADE_STATE_DIR", self.state.to_str().unwrap())
            .env("PATH", &path())
            .within(PATIENCE)
    }

    fn run(&self, language: &str, code: &str, given: &Given<'_>) -> Value {
        let options: Vec<&str> = given.options.iter().map(String::as_str).collect();
        let mut palisade = self.palisade(&["run", language, "--json"]).args(&options);
        for (name, value) in &given.env {
            palisade = palisade.env(name, value);
        }
        let ended = palisade.args(&["-c", code, "--"]).args(given.args).end();
        let mut result: Value = serde_json::from_str(&ended.stdout)
            .unwrap_or_else(|error| panic!("{language}: {error}: {} {}", ended.stdout, ended.stderr));
        result.as_object_mut().unwrap().remove("isolation");
        result
    }

    /// Whether the language is here; says loudly when it is not.
    fn has(&self, language: &str) -> bool {
        !is_missing(&self.run(language, "", &Given::default()), self.user)
    }

    fn entries(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.state.join("builds")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }
}

/// Whether the language is not here; says so loudly.
fn is_missing(result: &Value, user: User) -> bool {
    let is_missing = result["error"]["code"] == "language_missing";
    if is_missing {
        eprintln!("SKIPPED {} as {user:?}: {}", result["language"], result["error"]["message"]);
    }
    is_missing
}

/// Rust is often installed for one user only, and Go in a folder of its own.
fn path() -> String {
    let own = std::env::var("PATH").unwrap_or_default();
    let with = |compiler: &str| own.split(':').find(|folder| Path::new(folder).join(compiler).exists());
    let folders = ["rustc", "go"].map(|compiler| with(compiler).unwrap_or("/usr/bin"));
    format!("/usr/local/bin:/usr/bin:/bin:{}", folders.join(":"))
}

/// A file of the home in which a version manager keeps the toolchain.
fn beside_rust() -> String {
    let home = std::env::var("HOME").unwrap_or_default();
    format!("{home}/.rustup/settings.toml")
}

fn expect(result: &Value, stdout: &str, is_cached: bool) {
    assert_eq!(result["outcome"], "completed", "{result:#}");
    assert_eq!(result["stdout"], stdout, "{result:#}");
    assert_eq!(result["compile"]["cached"], is_cached, "{result:#}");
}

/// A test per language: all six together take minutes on a busy machine.
fn is_compiled_once(language: &str) {
    let (_, code) = PROGRAMS.into_iter().find(|(name, _)| *name == language).unwrap();
    let given = |args| Given { args, ..Given::default() };
    for user in users() {
        let place = Place::new(user, &format!("once-{language}"));
        let first = place.run(language, code, &given(&["one"]));
        if is_missing(&first, user) {
            continue;
        }
        expect(&first, "one\n", false);
        expect(&place.run(language, code, &given(&["two"])), "two\n", true);
        let other = format!("{code}\n");
        expect(&place.run(language, &other, &given(&["three"])), "three\n", false);
    }
}

#[test]
fn the_same_c_program_is_compiled_once() {
    is_compiled_once("c");
}

#[test]
fn the_same_cpp_program_is_compiled_once() {
    is_compiled_once("cpp");
}

#[test]
fn the_same_go_program_is_compiled_once() {
    is_compiled_once("go");
}

#[test]
fn the_same_rust_program_is_compiled_once() {
    is_compiled_once("rust");
}

#[test]
fn the_same_java_program_is_compiled_once() {
    is_compiled_once("java");
}

#[test]
fn the_same_csharp_program_is_compiled_once() {
    is_compiled_once("csharp");
}

#[test]
fn a_changed_input_that_takes_part_compiles_again() {
    let place = Place::new(User::Root, "inputs");
    let code = "#include <stdio.h>\n#include \"answer.h\"\nint main(void) { printf(\"%d\\n\", ANSWER); }";
    let run = |answer: &str, data: &str| {
        let header = readable_file("answer.h", format!("#define ANSWER {answer}\n").as_bytes());
        let other = readable_file("unrelated.csv", data.as_bytes());
        let option = |path: PathBuf| ["--input".to_owned(), path.to_str().unwrap().to_owned()];
        let options = option(header).into_iter().chain(option(other)).collect();
        place.run("c", code, &Given { options, ..Given::default() })
    };
    expect(&run("1", "a"), "1\n", false);
    expect(&run("1", "b"), "1\n", true);
    expect(&run("2", "b"), "2\n", false);
    expect(&run("1", "c"), "1\n", true);
}

#[test]
fn values_of_variables_arrive_whole_and_do_not_compile_again() {
    let place = Place::new(User::Root, "values");
    let hostile = [
        "\"; system(\"id\"); //",
        "*/ #include </etc/passwd> /*",
        "\\u0022 \\x22 ??/ ??' %s %n ${HOME} `id` $(id)",
        "line one\nline two\r\n\ttab",
        "ünï 世界 🌍 \u{7f} \u{1} \u{2028}",
        "",
        "@bind@ {name} @declare@",
    ];
    let mut chance = Chance::new(7);
    let letters: Vec<char> =
        "\"'\\\n\r\t*/?u0{}[]$`%@sı\u{0}é🌍".chars().filter(|letter| *letter != '\0').collect();
    let rounds = if is_quick() { 3 } else { 12 };
    let random: Vec<String> =
        (0..rounds).map(|_| (0..40).map(|_| letters[chance.below(letters.len())]).collect()).collect();
    for (language, code) in ECHOES.into_iter().filter(|(language, _)| place.has(language)) {
        let mut is_cached = false;
        for text in hostile.iter().map(|text| (*text).to_owned()).chain(random.iter().cloned()) {
            let number = chance.any() as i64;
            let options = vec![
                "--var".to_owned(),
                format!("words={}", json!(text)),
                "--var".to_owned(),
                format!("number={number}"),
            ];
            let result = place.run(language, code, &Given { options, ..Given::default() });
            expect(&result, &format!("{number}|{text}"), is_cached);
            is_cached = true;
        }
    }
}

#[test]
fn a_variable_may_have_any_name_that_is_no_keyword() {
    let place = Place::new(User::Root, "names");
    let names = [
        "next", "all", "line", "text", "count", "value", "read", "list", "Input", "Integer", "String",
        "Object", "vars", "main", "bind", "skip", "room", "FIRST", "LIST", "index", "time", "strings", "fmt",
        "os", "big", "reading", "data", "size", "printf", "nothing", "items", "left", "right", "P", "args",
        "Box", "Vec", "None", "Err",
    ];
    let mut options = Vec::new();
    for name in names {
        options.extend(["--var".to_owned(), format!("{name}={{\"a\": [1, \"x\"]}}")]);
    }
    options.extend(["--var", "words=\"w\"", "--var", "number=5"].map(str::to_owned));
    for (language, code) in ECHOES.into_iter().filter(|(language, _)| place.has(language)) {
        let given = Given { options: options.clone(), ..Given::default() };
        let result = place.run(language, code, &given);
        assert_eq!(result["stdout"], "5|w", "{language} {result:#}");
    }
}

#[test]
fn a_keyword_is_refused_by_name() {
    let place = Place::new(User::Root, "keywords");
    for (language, keyword) in
        [("c", "int"), ("cpp", "class"), ("go", "func"), ("rust", "fn"), ("java", "final")]
    {
        let options = vec!["--var".to_owned(), format!("{keyword}=1")];
        if place.has(language) {
            let result = place.run(language, "", &Given { options, ..Given::default() });
            assert_eq!(result["error"]["code"], "bad_variables", "{language} {result:#}");
        }
    }
}

/// Tries everything that could change what the next run of this program starts.
const TAMPER: &str = r#"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
static int changed;
static void tried(const char *what, int result) {
    if (result >= 0) { printf("CHANGED by %s\n", what); changed = 1; }
}
int main(void) {
    const char *own[] = {"/palisade/build/program", "/proc/self/exe", "/proc/1/exe", "/palisade/build", "/palisade"};
    for (int i = 0; i < 5; i++) {
        tried("open for writing", open(own[i], O_WRONLY));
        tried("open and cut", open(own[i], O_RDWR | O_TRUNC));
        tried("cut", truncate(own[i], 0));
        tried("mode", chmod(own[i], 0777));
        tried("removal", unlink(own[i]));
        tried("new name", rename(own[i], "/palisade/other"));
        tried("replacement", rename("/workspace/mine", own[i]));
        tried("link", link(own[i], "/workspace/linked"));
    }
    close(open("/workspace/mine", O_CREAT | O_WRONLY, 0755));
    tried("new file", open("/palisade/build/more", O_CREAT | O_WRONLY, 0755));
    tried("new folder", mkdir("/palisade/build/folder", 0755));
    tried("symbolic link", symlink("/bin/true", "/palisade/build/again"));
    tried("remount", mount("none", "/palisade/build", 0, MS_REMOUNT | MS_BIND, 0));
    tried("mount", mount("none", "/palisade/build", "tmpfs", 0, 0));
    tried("unmount", umount2("/palisade/build", MNT_DETACH));
    puts(changed ? "CHANGED" : "HELD");
}
"#;

#[test]
fn a_program_cannot_change_what_is_kept() {
    for user in users() {
        let place = Place::new(user, "tamper");
        expect(&place.run("c", TAMPER, &Given::default()), "HELD\n", false);
        expect(&place.run("c", TAMPER, &Given::default()), "HELD\n", true);
    }
}

#[test]
fn a_compiler_sees_nothing_of_the_host() {
    let secret = format!("secret-{}", std::process::id());
    let file = readable_file("compile-time-secret.h", format!("#error {secret}\n").as_bytes());
    let file = file.to_str().unwrap();
    let attempts = [
        ("c", format!("#include \"{file}\"\nint main(void) {{ return 0; }}")),
        ("c", format!("__asm__(\".incbin \\\"{file}\\\"\");\nint main(void) {{ return 0; }}")),
        ("c", "#include \"/proc/1/environ\"\nint main(void) { return 0; }".to_owned()),
        ("c", "#include \"/etc/shadow\"\nint main(void) { return 0; }".to_owned()),
        ("cpp", format!("#include \"../../../../../../{file}\"\nint main() {{}}")),
        ("rust", format!("const S: &[u8] = include_bytes!({file:?});\nfn main() {{ println!(\"{{}}\", S.len()); }}")),
        ("rust", format!("#[path = {file:?}]\nmod secret;\nfn main() {{}}")),
        ("rust", "fn main() { print!(\"{}\", include_str!(\"/etc/shadow\")); }".to_owned()),
        // Beside a toolchain that lies in a home.
        ("rust", format!("fn main() {{ print!(\"{{}}\", include_str!({:?})); }}", beside_rust())),
        ("go", format!("package main\nimport _ \"embed\"\n//go:embed {file}\nvar s string\nfunc main() {{ print(s) }}")),
        ("go", format!("package main\n// #include \"{file}\"\nimport \"C\"\nfunc main() {{}}")),
        (
            "go",
            "package main\nimport _ \"embed\"\n//go:embed ../etc/passwd\nvar s string\nfunc main() { print(s) }".to_owned(),
        ),
    ];
    for user in users() {
        let place = Place::new(user, "secret");
        for (language, code) in attempts.iter().filter(|(language, _)| place.has(language)) {
            let result = place.run(language, code, &Given::default());
            assert_eq!(result["outcome"], "compile_failed", "{code}\n{result:#}");
            assert!(!result.to_string().contains(&secret), "{code}\n{result:#}");
            assert!(!result.to_string().contains("root:"), "{code}\n{result:#}");
        }
        let kept: Vec<PathBuf> =
            place.entries().into_iter().filter(|entry| !entry.to_string_lossy().contains("new-")).collect();
        assert_eq!(kept, Vec::<PathBuf>::new(), "a program that does not compile leaves nothing");
    }
}

#[test]
fn an_input_cannot_pass_for_a_product() {
    let place = Place::new(User::Root, "planted");
    let planted = readable_file("planted-program", b"#!/bin/sh\necho planted\n");
    let code = "// program planted-program\nint main(void) { return 0; }";
    let options = vec!["--input".to_owned(), format!("{}=.palisade-build/program", planted.display())];
    expect(&place.run("c", code, &Given { options, ..Given::default() }), "", false);
    expect(&place.run("c", code, &Given::default()), "", true);
}

#[test]
fn a_damaged_product_is_noticed_and_made_again() {
    let place = Place::new(User::Root, "damaged");
    let (language, code) = PROGRAMS[0];
    let run = || place.run(language, code, &Given { args: &["x"], ..Given::default() });
    expect(&run(), "x\n", false);
    let [entry] = place.entries().try_into().unwrap();
    let program = entry.join("files/program");
    let mut bytes = fs::read(&program).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&program, bytes).unwrap();
    expect(&run(), "x\n", false);
    expect(&run(), "x\n", true);
    fs::copy("/bin/true", &program).unwrap();
    expect(&run(), "x\n", false);
    fs::write(entry.join("files/more"), b"").unwrap();
    expect(&run(), "x\n", false);
    expect(&run(), "x\n", true);
}

#[test]
fn servers_side_by_side_share_what_is_kept() {
    let place = Place::new(User::Root, "shared");
    let (language, code) = PROGRAMS[0];
    std::thread::scope(|scope| {
        let run = |number: usize| {
            let text = number.to_string();
            for _ in 0..3 {
                let result = place.run(language, code, &Given { args: &[&text], ..Given::default() });
                assert_eq!(result["stdout"], format!("{number}\n"), "{result:#}");
            }
        };
        let threads: Vec<_> = (0..4).map(|number| scope.spawn(move || run(number))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(place.entries().len(), 1, "{:?}", place.entries());
}

#[test]
fn a_server_killed_while_it_compiles_does_no_harm() {
    let place = Place::new(User::Root, "killed");
    let (language, code) = PROGRAMS[1];
    let whole = place.run(language, "int main() {}", &Given::default());
    assert_eq!(whole["outcome"], "completed", "{whole:#}");
    let mut chance = Chance::new(11);
    for round in 0..6 {
        let live = Live::start(place.palisade(&["run", language, "-c", &format!("{code}//{round}")]));
        // Somewhere between the start and the end of the compilation: whenever is right.
        std::thread::sleep(Duration::from_millis(chance.below(400) as u64));
        live.signal(Signal::KILL);
    }
    for round in 0..6 {
        let code = format!("{code}//{round}");
        let result = place.run(language, &code, &Given { args: &["fine"], ..Given::default() });
        assert_eq!(
            (&result["outcome"], &result["stdout"]),
            (&json!("completed"), &json!("fine\n")),
            "{result:#}"
        );
    }
    let unfinished = || place.entries().iter().any(|entry| entry.to_string_lossy().contains("new-"));
    until(SOON, "unfinished products stay", || (!unfinished()).then_some(()));
}

#[test]
fn a_compiler_has_limits_of_its_own() {
    let place = Place::new(User::Root, "bomb");
    // Doubles with every line; no compiler gets through it.
    let mut code = String::from("#define A0 1,1\n");
    for step in 1..40 {
        code.push_str(&format!("#define A{step} A{0},A{0}\n", step - 1));
    }
    code.push_str("int all[] = {A39};\nint main(void) { return 0; }\n");
    let env = vec![("PALISADE_LIMITS_MAX_TIMEOUT_MS", "3000")];
    let result = place.run("c", &code, &Given { env, ..Given::default() });
    let outcome = result["outcome"].as_str().unwrap();
    assert!(["timed_out", "out_of_memory"].contains(&outcome), "{result:#}");
    let message = result["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("while compiling"), "{message}");
}

#[test]
fn every_language_tells_its_mistakes_without_running() {
    let mistakes = [
        ("c", "int main(void) {\n  return x;\n}", 2, 10),
        ("cpp", "int main() {\n  return x;\n}", 2, 10),
        ("go", "package main\nfunc main() {\n\tx()\n}", 3, 2),
        ("rust", "fn main() {\n    x();\n}", 2, 5),
        ("java", "class P {\n  void f() { x(); }\n}", 2, 14),
        ("csharp", "class P {\n  static void Main() { x(); }\n}", 2, 24),
    ];
    for user in users() {
        let place = Place::new(user, "checks");
        for (language, code, line, column) in
            mistakes.into_iter().filter(|(language, ..)| place.has(language))
        {
            let check = |code: &str| -> Value {
                let ended = place.palisade(&["check", language, "--json", "-c", code]).end();
                serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error} {}", ended.stderr))
            };
            let found = check(code);
            let error = &found["errors"][0];
            assert_eq!(
                (&error["line"], &error["column"]),
                (&json!(line), &json!(column)),
                "{language} {found:#}"
            );
            let (_, sound) = PROGRAMS.into_iter().find(|(name, _)| *name == language).unwrap();
            assert_eq!(check(sound)["valid"], true, "{language}");
        }
    }
}

#[test]
fn languages_that_are_not_there_are_skipped_by_name_only() {
    // At least C is everywhere; a suite that skips all proves nothing.
    let place = Place::new(User::Root, "present");
    let present: BTreeSet<&str> =
        PROGRAMS.into_iter().map(|(language, _)| language).filter(|language| place.has(language)).collect();
    assert!(present.contains("c"), "{present:?}");
}
