//! What commands start, and what a server cannot make them show.

use super::*;

fn around(writable: &[PathBuf]) -> Around<'_> {
    Around { state_dir: Path::new("/nowhere"), writable }
}

fn launch(words: &[&str]) -> Launch {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    match resolve(&words, &around(&[])).unwrap() {
        Command::Program(launch) => launch,
        Command::Packaged(other) => panic!("{other:?}"),
    }
}

#[test]
fn a_language_by_name_is_the_interpreter_of_that_language() {
    for (word, language) in [("python3.11", "python"), ("python", "python"), ("node", "javascript")] {
        let launch = launch(&[word, "-m", "x"]);
        assert_eq!((launch.language, launch.argv[0].as_str()), (Some(language), ""));
        assert_eq!(launch.argv[1..], ["-m", "x"]);
    }
}

#[test]
fn a_script_is_shown_with_what_it_belongs_to() {
    let folder = harness::TestFolder::new();
    let root = std::fs::canonicalize(folder.path()).unwrap();
    let script = root.join("app/node_modules/x/cli.js");
    std::fs::create_dir_all(script.parent().unwrap()).unwrap();
    std::fs::write(&script, "#!/usr/bin/env node\n").unwrap();
    executable(&script);
    let found = launch(&[script.to_str().unwrap(), "--stdio"]);
    assert_eq!(found.language, Some("javascript"));
    assert_eq!(found.argv, ["", script.to_str().unwrap(), "--stdio"]);
    assert_eq!(found.binds, [root.join("app/node_modules")]);

    let venv = root.join("venv");
    std::fs::create_dir_all(venv.join("bin")).unwrap();
    std::fs::write(venv.join("pyvenv.cfg"), "").unwrap();
    let script = venv.join("bin/server");
    std::fs::write(&script, "#!/bin/sh\n").unwrap();
    executable(&script);
    let found = launch(&[script.to_str().unwrap()]);
    assert_eq!((found.language, found.binds), (None, vec![venv]));

    let alone = root.join("alone");
    std::fs::write(&alone, "#!/bin/sh\n").unwrap();
    executable(&alone);
    assert_eq!(launch(&[alone.to_str().unwrap()]).binds, std::slice::from_ref(&alone));
    let dotted = root.join("app/../alone");
    let found = launch(&["python3", "-u", dotted.to_str().unwrap()]);
    assert_eq!((&found.argv[2], found.binds), (&alone.to_str().unwrap().to_owned(), vec![alone]));
}

fn executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn what_cannot_be_started_is_told() {
    let fails = |words: &[&str]| {
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        resolve(&words, &around(&[])).unwrap_err()
    };
    assert!(fails(&["no-such-program-here"]).contains("is no program"));
    assert!(fails(&["relative/path"]).contains("is no program"));
    assert!(fails(&["docker", "run", "x"]).contains("behind the wall"));
    assert!(fails(&[]).contains("no command"));
}

#[test]
fn the_first_line_names_the_interpreter() {
    let named = |name: &str| Ok(Some(Interpreter::Named(name.to_owned())));
    assert_eq!(interpreter(b"#!/usr/bin/env node\nx"), named("node"));
    assert_eq!(interpreter(b"#! /usr/bin/env -S A=1 python3 -I\n"), named("python3"));
    assert_eq!(interpreter(b"#!/bin/sh -e\n"), Ok(Some(Interpreter::At("/bin/sh".into()))));
    assert_eq!(interpreter(b"\x7fELF"), Ok(None));
    for odd in
        ["env -u /a python3", "env -S -u /a python3", "env -S A=1 -i x", "env -vS x", "env --split-string=x"]
    {
        let refused = interpreter(format!("#!/usr/bin/{odd}\n").as_bytes()).unwrap_err();
        assert!(refused.contains("only -S"), "{odd}: {refused}");
    }
    assert!(interpreter(b"#!python3\n").unwrap_err().contains("without its path"));
}

/// A directory that a server may write, a program in it, and a directory that is not shown to it.
struct Written {
    _kept: harness::TestFolder,
    data: PathBuf,
    secret: PathBuf,
}

impl Written {
    fn new() -> Self {
        let kept = harness::TestFolder::new();
        let root = std::fs::canonicalize(kept.path()).unwrap();
        let (data, secret) = (root.join("data"), root.join("secret"));
        std::fs::create_dir_all(data.join("bin")).unwrap();
        std::fs::create_dir_all(secret.join("hooks")).unwrap();
        std::fs::write(secret.join("package.json"), "{}").unwrap();
        let written = Self { _kept: kept, data, secret };
        written.program("../secret/hooks/x", "#!/bin/sh\n");
        written
    }

    fn program(&self, name: &str, text: &str) -> PathBuf {
        let path = self.data.join(name);
        std::fs::write(&path, text).unwrap();
        executable(&path);
        path
    }

    fn resolve(&self, words: &[&Path]) -> Result<Launch, String> {
        let words: Vec<String> = words.iter().map(|word| word.to_str().unwrap().to_owned()).collect();
        let found = resolve(&words, &around(std::slice::from_ref(&self.data)))?;
        let Command::Program(launch) = found else { panic!("{found:?}") };
        Ok(launch)
    }

    /// The start is refused, and names the file and what it leads to.
    fn refused(&self, words: &[&Path], file: &Path) {
        let refused = self.resolve(words).unwrap_err();
        for path in [file, self.secret.as_path()] {
            assert!(refused.contains(path.to_str().unwrap()), "{refused}");
        }
    }
}

#[test]
fn a_script_that_a_server_may_write_names_no_interpreter_elsewhere() {
    let written = Written::new();
    let secret = written.secret.join("hooks/x");
    for line in [format!("#!{}\n", secret.display()), format!("#!/usr/bin/env {}\n", secret.display())] {
        let script = written.program("server", &line);
        written.refused(&[&script], &script);
    }
    // The option of env(1) would take the next word.
    let script = written.program("server", &format!("#!/usr/bin/env -S -u {} python3\n", secret.display()));
    assert!(written.resolve(&[&script]).unwrap_err().contains("only -S"));
    // By an interpreter beneath the same directory, too.
    let between = written.program("bin/between", &format!("#!{}\n", secret.display()));
    let script = written.program("server", &format!("#!{}\n", between.display()));
    written.refused(&[&script], &script);
    // The system, and what lies beneath the same directory.
    let own = written.program("bin/own", "#!/bin/sh\n");
    let script = written.program("server", &format!("#!{}\n", own.display()));
    assert_eq!(written.resolve(&[&script]).unwrap().binds, [own, script]);
}

#[test]
fn a_link_that_a_server_may_make_leads_to_no_program_elsewhere() {
    let written = Written::new();
    let link = |name: &str, to: &Path| {
        let place = written.data.join(name);
        std::os::unix::fs::symlink(to, &place).unwrap();
        place
    };
    let program = link("server", &written.secret.join("hooks/x"));
    written.refused(&[&program], &program);
    written.refused(&[Path::new("python3"), &program], &program);
    let folder = link("folder", &written.secret);
    written.refused(&[&folder.join("hooks/x")], &folder);
    let binary = std::fs::canonicalize("/bin/sh").unwrap();
    let shell = written.data.join("bin/shell");
    std::fs::copy(binary, &shell).unwrap();
    let libraries = link("lib", &written.secret);
    written.refused(&[&shell], &shell);
    std::fs::remove_file(&libraries).unwrap();
    written.resolve(&[&shell]).unwrap();
    // As in a virtual environment.
    let system = link("bin/python", Path::new("/usr/bin/env"));
    assert_eq!(written.resolve(&[&system]).unwrap().binds, [system]);
}

#[test]
fn a_server_does_not_decide_that_more_than_its_directory_is_shown() {
    let written = Written::new();
    let above = written.data.parent().unwrap();
    std::fs::write(above.join("package.json"), "{}").unwrap();
    let program = written.program("server", "#!/bin/sh\n");
    assert_eq!(written.resolve(&[&program]).unwrap().binds, [program]);
    let elsewhere = Written::new();
    std::fs::create_dir(written.data.join("state")).unwrap();
    std::fs::write(written.data.join("package.json"), "{}").unwrap();
    let state_dir = written.data.join("state");
    let words = [written.data.join("server").to_str().unwrap().to_owned()];
    let around = Around { state_dir: &state_dir, writable: std::slice::from_ref(&elsewhere.data) };
    assert!(resolve(&words, &around).unwrap_err().contains("credentials of Palisade"));
}
