//! What programs become, line by line.

use super::*;

fn typed(source: &str) -> String {
    let prepared = prepare(source, Language::TypeScript, Mode::File)
        .unwrap_or_else(|problems| panic!("{source}: {problems:?}"));
    assert_eq!(prepared.code.matches('\n').count(), source.matches('\n').count(), "{source}");
    prepared.code
}

fn squeezed(source: &str) -> String {
    typed(source).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn types_become_blanks_of_the_same_width() {
    assert_eq!(typed("let x: number = 1 as any;"), "let x         = 1       ;");
    assert_eq!(typed("f<T>(a!, b satisfies B)"), "f   (a , b            )");
    assert_eq!(
        typed("function f<T>(this: X, a?: T, ...r: T[]): a is T { return a! }")
            .split_whitespace()
            .collect::<String>(),
        "functionf(a,...r){returna;}"
    );
}

#[test]
fn declarations_without_value_disappear() {
    for source in [
        "interface A { x: 1 }",
        "type A = {\n a: 1\n}",
        "declare const x: 1;",
        "declare function f(): void;",
        "function f(a: string): void;",
        "declare module 'x' { }",
        "declare global { }",
        "namespace N { type A = 1 }",
        "import type { A } from 'a';",
        "import { A } from 'a'; let x: A",
        "abstract class X {}",
        "export type { A } from 'a'",
        "declare namespace N { const x: 1 }",
        "declare enum E { A }",
        "export interface I {}",
    ] {
        let code = squeezed(source);
        let rest: &[&str] = &["", ";", "; let x;", "class X {}"];
        assert!(rest.contains(&code.as_str()), "{source} -> {code}");
    }
}

#[test]
fn imports_used_as_types_only_are_left_out() {
    assert_eq!(
        squeezed("import D, { a, type B, C } from 'm'; a(); let x: C;"),
        "import { a } from 'm'; a(); let x ;"
    );
    assert_eq!(squeezed("import * as m from 'm'; m.a"), "import * as m from 'm'; m.a");
    assert_eq!(squeezed("import 'm'"), "import 'm'");
    assert_eq!(squeezed("type T = 1; const v = 1; export { T, v };"), "; const v = 1; export { v };");
}

#[test]
fn members_lose_their_modifiers() {
    let source = "class A<T> extends B<T> implements C {\n  private readonly x: number = 1\n  static override y?: T\n  declare z: 1\n  abstract w: 1\n  [k: string]: any\n  public m?(): void {}\n  m2(): void\n  m2(a?: any) {}\n}";
    let code = typed(&source.replace("  abstract w: 1\n", ""));
    assert_eq!(
        code.split_whitespace().collect::<String>(),
        "classAextendsB{;x=1static;y;;;m(){};m2(a){}}".replace("static;y;", "staticy;;"),
        "{code}"
    );
}

#[test]
fn lines_that_lost_a_type_do_not_run_on() {
    assert_eq!(typed("let x: T\n(y)"), "let x;  \n(y)");
    assert_eq!(typed("a\ntype T = 1\n(b)"), "a\n;         \n(b)");
    assert_eq!(typed("const f = (): {\n a: 1 } => 1"), "const f = (    \n      ) => 1");
}

#[test]
fn parameter_properties_are_set() {
    assert_eq!(
        squeezed("class A { constructor(private x: number, readonly y = 2, z) { go() } }"),
        "class A { constructor( x , y = 2, z) {;this.x=x;this.y=y; go() } }"
    );
    assert_eq!(
        squeezed("class A extends B { constructor(public x) { super(x); go() } }"),
        "class A extends B { constructor( x) { super(x);;this.x=x; go() } }"
    );
}

#[test]
fn decorators_are_refused_with_their_place() {
    let problems = prepare("class A {\n  @log m() {}\n}", Language::TypeScript, Mode::Last).unwrap_err();
    assert_eq!((problems[0].line, problems[0].column), (2, 3));
    assert!(problems[0].message.contains("decorators"));
}

#[test]
fn modules_are_told_from_scripts() {
    let kind = |source: &str| prepare(source, Language::JavaScript, Mode::Last).unwrap().kind;
    for module in ["import 'a'", "export {}", "await 1", "import.meta.url", "for await (const x of y) {}"] {
        assert_eq!(kind(module), Kind::Module, "{module}");
    }
    for script in [
        "1",
        "require('a')",
        "return 1",
        "with (a) {}",
        "async () => { await 1 }",
        "import('a')",
        "var await = 1",
        "010",
    ] {
        assert_eq!(kind(script), Kind::CommonJs, "{script}");
    }
}

#[test]
fn the_last_expression_is_handed_over_without_moving_a_line() {
    let last = |source: &str| {
        let prepared = prepare(source, Language::JavaScript, Mode::Last).unwrap();
        (prepared.before, prepared.code)
    };
    let pair = |before: &str, code: &str| (before.to_owned(), code.to_owned());
    assert_eq!(last("1+1"), pair("__palisade_value(()=>(", "1+1\n))"));
    assert_eq!(last("a() // x\n\nb; // y\n"), pair("", "a();__palisade_value(()=>( // x\n\nb  // y\n\n))"));
    assert_eq!(last("'text'"), pair("__palisade_value(()=>(", "'text'\n))"));
    assert_eq!(last("await x"), pair("await __palisade_value(async()=>(", "await x\n),true)"));
    assert_eq!(last("let x = 1"), pair("", "let x = 1"));
    assert_eq!(last(""), pair("", ""));
}

#[test]
fn a_console_gets_what_it_understands() {
    let keep = |source: &str| prepare(source, Language::JavaScript, Mode::Keep).unwrap().code;
    assert_eq!(keep("const x = 1"), "let   x = 1");
    assert_eq!(
        keep("import a, { b as c } from 'x'\n1"),
        "let { default: a, b: c } = await __palisade_import('x');\n1"
    );
    assert_eq!(keep("import * as n from \"x\""), "let n = await __palisade_import(\"x\");");
    assert_eq!(keep("import 'x'"), "await __palisade_import('x');");
    assert_eq!(keep("export const y = import('z')"), "       let   y = __palisade_import('z')");
}

#[test]
fn problems_name_line_and_column_in_characters() {
    let problems = check("let a = 1;\nlet 'ü' = (;", Language::JavaScript).problems;
    assert_eq!(problems[0].line, 2);
    let problems = check("let a; let a;", Language::JavaScript).problems;
    assert_eq!(problems.len(), 1, "{problems:?}");
    let problems = prepare("const x: number = ;\n", Language::TypeScript, Mode::Last).unwrap_err();
    assert_eq!((problems[0].line, problems[0].column), (1, 19));
}

#[test]
fn imports_are_listed_with_their_lines() {
    let found = check(
        "import a from 'a';\nconst b = require('b');\nimport('c');\nexport * from './d'",
        Language::JavaScript,
    );
    let expected = [("a", 1), ("b", 2), ("c", 3), ("./d", 4)].map(|(name, line)| (name.to_owned(), line));
    assert_eq!(found.imports, expected);
}
