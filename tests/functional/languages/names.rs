//! A program on the command line keeps its file name in the messages of its compiler and in its own.

use std::fs;
use std::time::Duration;

use functional::languages::{Language, languages};
use functional::own_folder;
use harness::{Build, Palisade, User, users};
use libtest_mimic::{Failed, Trial};

/// A compiler on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Language, file, program, and a part of the messages.
const PROGRAMS: [(&str, &str, &str, &str); 14] = [
    ("c", "prog.c", "int main(void) {\n  return x;\n}", "prog.c:2:10: error: "),
    ("c", "check.c", "#include <assert.h>\nint main(void) {\n  assert(0);\n}", "check.c:3: main: "),
    // Names that a compiler would understand otherwise.
    ("c", "-c.c", "int main(void) {\n  return x;\n}", "main.c:2:10: error: "),
    ("c", "prog.o", "int main(void) {\n  return x;\n}", "main.c:2:10: error: "),
    ("cpp", "prog.cc", "int main() {\n  return x;\n}", "prog.cc:2:10: error: "),
    ("rust", "my-prog.rs", "fn main() {\n  x();\n}", "--> my-prog.rs:2:3"),
    ("rust", "panics.rs", "fn main() {\n  panic!(\"oh\");\n}", "panicked at panics.rs:2:3:"),
    ("go", "my_prog.go", "package main\n\nfunc main() { x() }", "./my_prog.go:3:15: undefined: x"),
    ("go", "prog_windows.go", "package main\n\nfunc main() { x() }", "./main.go:3:15: undefined: x"),
    // The name of a public class need not be that of the file.
    (
        "java",
        "some-name.java",
        "public class Other {\n  public static void main(String[] a) { int x = \"\"; }\n}",
        "some-name.java:2:49: error: ",
    ),
    (
        "java",
        "thrower.java",
        "public class Other {\n  public static void main(String[] a) { throw new Error(); }\n}",
        "at Other.main(thrower.java:2)",
    ),
    ("csharp", "prog.cs", "class P {\n  static void Main() { x(); }\n}", "prog.cs(2,24): error CS0103"),
    ("typescript", "prog.ts", "let x: number = 1;\nlet y: = 2;", "prog.ts:2:"),
    ("typescript", "thrower.ts", "let x: number = 1;\nthrow new Error('oh');", "/workspace/thrower.ts:2"),
];

pub(crate) fn trials() -> Vec<Trial> {
    let is_here = |language: &Language| PROGRAMS.iter().any(|(name, ..)| *name == language.name);
    let languages = languages().into_iter().filter(is_here);
    languages
        .map(|language| {
            language.trial("keeps_the_file_name_of_a_program", users()[0], keeps_the_file_name_of_a_program)
        })
        .collect()
}

fn keeps_the_file_name_of_a_program(language: &Language, user: User) -> Result<(), Failed> {
    let folder = own_folder(user, &format!("names-{}", language.name));
    for (_, name, code, said) in PROGRAMS.iter().filter(|(of, ..)| *of == language.name) {
        let file = folder.join(name);
        fs::write(&file, code)?;
        let palisade = Palisade::new(Build::Real, user, &["run", &language.name, file.to_str().unwrap()]);
        let ended = palisade.env("PATH", &language.search_path(user)).within(PATIENCE).end();
        if !ended.stderr.contains(said) {
            return Err(format!("{name}: `{said}` is not in\n{}", ended.stderr).into());
        }
    }
    Ok(())
}
