//! TypeScript programs run without a compiler of their own, and errors name the source's places.

use functional::{completed, outcome, readable_file, run_json};
use harness::{Build, Palisade, User, users};
use serde_json::{Value, json};

fn prints(code: &str, expected: &str) {
    assert_eq!(completed(one_user(), "typescript", code, &[]), expected, "{code}");
}

fn one_user() -> User {
    users().pop().unwrap()
}

fn result(code: &str) -> Value {
    run_json(one_user(), "typescript", code, &[])
}

#[test]
fn a_typed_program_runs_as_every_user() {
    for user in users() {
        let code = "interface P { x: number }\nconst p: P = { x: 6 };\nconsole.log(p.x * 7 as number)";
        assert_eq!(completed(user, "typescript", code, &[]), "42\n");
    }
}

#[test]
fn enums_are_objects() {
    prints(
        "enum C { Red, Green = 5, Blue, S = 'x', T = Red | Green }\nconst enum K { A = 1 << 2, B }\n\
         console.log(C.Blue, C[5], C.S, C.T, K.B); export enum E { X } console.log(E)",
        "6 T x 5 5\n{ '0': 'X', X: 0 }\n",
    );
}

#[test]
fn namespaces_are_objects() {
    prints(
        "namespace Geo { export const pi = 3; export let n = 0; export function area(r: number) { n++; return pi * r * r }\n\
         export namespace In { export class P { constructor(public x: number) {} } } type T = 1; const own = 2; export const seen = own }\n\
         namespace Geo { export const more = 1 } namespace A.B { export const c = 8 }\n\
         console.log(Geo.area(2), Geo.n, new Geo.In.P(4).x, Geo.seen, Geo.more, A.B.c)\n\
         function f() { return f.extra } namespace f { export const extra = 9 } console.log(f())",
        "12 1 4 2 1 8\n9\n",
    );
}

#[test]
fn classes_keep_what_has_a_value() {
    prints(
        "abstract class A<T> { constructor(protected readonly name: string, public n = 1) {} abstract go(): T; [k: string]: any; declare z: 1;\n\
         get size(): number { return this.name.length } static s?: number = 3; over(a: string): void; over(a?: any) { return a } }\n\
         class B extends A<number> implements I { #p: number = 7; constructor(private tag?: string) { super('ab'); } override go(): number { return this.#p! } }\n\
         interface I { go(): number }\nconst b: B = new B('t'); console.log(b.go(), b.size, b['tag'], b.n, A.s, (b as A<number>).over?.(4))",
        "7 2 t 1 3 4\n",
    );
}

#[test]
fn types_in_every_place_disappear() {
    prints(
        "type F<T extends object = {}> = (this: Window, ...a: T[]) => asserts a is T[];\ndeclare const nope: F; declare module 'x' { }\n\
         function id<const T>(x: T, y?: number): x is T { return <any>x! }\nfunction over(a: string): void\nfunction over(a: any) { return a }\n\
         const o = { a: 1 } satisfies Record<string, number>\nlet later!: string\nconst g = async <T,>(x: T): Promise<\n  T> => x\n\
         for (const k of Object.keys(o) as (keyof typeof o)[]) console.log(k, id<string>('q'), over('r'), later, await g<number>(5))\n\
         try { throw 1 } catch (e: unknown) { console.log(e) }\nlabel: { break label }\nconst t = `${(1 as number)}`, u = o!.a!;console.log(t, u)",
        "a q r undefined 5\n1\n1 1\n",
    );
}

#[test]
fn lines_without_semicolons_stay_apart() {
    prints(
        "let x: number\ntype T = 1\n(function () { console.log('called') })()\nlet y = 2 as number\n[1].forEach((v) => console.log(v, y))",
        "called\n1 2\n",
    );
}

#[test]
fn imports_of_types_are_left_out() {
    prints(
        "import type { A } from './nope';\nimport { type B, sep } from 'path';\nimport fs = require('fs');\nimport { C } from './gone';\n\
         let c: C | A | B;\nconsole.log(sep, typeof fs.readFileSync)",
        "/ function\n",
    );
    prints("import p = require('path'); console.log(p.sep); export = 3", "/\n");
}

#[test]
fn files_beside_the_program_can_be_imported() {
    let helper = readable_file(
        "typescript-helper.ts",
        b"import { deep } from './lib/deep'; export enum K { A = 7 }\nexport const v: number = deep;\nexport function fail(): never { throw new Error('in helper') }",
    );
    let deep = readable_file("typescript-deep.ts", b"export const deep: number = 4");
    let plain = readable_file("typescript-plain.mjs", b"export const p = 'plain'");
    let common = readable_file("typescript-common.cts", b"const x: number = 5; exports.x = x;");
    for user in users() {
        let inputs: Vec<String> =
            [(&helper, "helper.ts"), (&deep, "lib/deep.ts"), (&plain, "plain.mjs"), (&common, "common.cts")]
                .map(|(file, name)| format!("{}={name}", file.display()))
                .into();
        let options: Vec<&str> = inputs.iter().flat_map(|input| ["--input", input.as_str()]).collect();
        let code = "import { v, K } from './helper';\nimport { p } from './plain.mjs';\nimport { x } from './common.cts';\n\
                    const js = await import('./helper.js');\nconsole.log(v, K.A, p, x, js.v, require('./common.cts').x)";
        assert_eq!(completed(user, "typescript", code, &options), "4 7 plain 5 4 5\n");
        let failed = run_json(user, "typescript", "import { fail } from './helper.ts'\nfail()", &options);
        assert!(failed["stderr"].as_str().unwrap().contains("/workspace/helper.ts:3:39"), "{failed:#}");
    }
}

#[test]
fn a_program_that_does_not_compile_is_told_with_its_place() {
    for (code, line, column) in [
        ("const x: number = ;\n", 1, 19),
        ("const a = 1\nlet 'ü' = 2", 2, 5),
        ("let a: string\nlet a: number", 2, 5),
        ("class A {\n  @log m() {}\n}", 2, 3),
    ] {
        for user in users() {
            let result = run_json(user, "typescript", code, &[]);
            assert_eq!(outcome(&result), "compile_failed", "{result:#}");
            let error = &result["error"];
            assert_eq!((&error["line"], &error["column"]), (&json!(line), &json!(column)), "{result:#}");
            let stderr = result["stderr"].as_str().unwrap();
            assert!(stderr.starts_with(&format!("main.ts:{line}:{column}: SyntaxError: ")), "{stderr}");
            assert_eq!(result["exit_code"], 1);
        }
    }
    let decorated = result("@sealed class A {}");
    assert!(decorated["error"]["message"].as_str().unwrap().contains("decorators"), "{decorated:#}");
}

#[test]
fn errors_at_run_time_name_the_place_in_the_source() {
    for (code, line, column) in [
        ("function f(x: string): never { throw new Error('boom') }\nf('q' as string)", 1, 38),
        ("enum E { A }\nnamespace N { export const x = 1 }\n\n  boom(E.A as number)", 4, 3),
        ("class A { constructor(private x: any) { this.x.y.z } }\nnew A({})", 1, 50),
        ("enum E { A = 1, B = boom() }", 1, 21),
        ("type T = {\n  a: 1\n}\nlet x: T | null = null; (x!).a", 4, 30),
    ] {
        let result = result(code);
        assert_eq!(outcome(&result), "failed", "{result:#}");
        let error = &result["error"];
        assert_eq!((&error["line"], &error["column"]), (&json!(line), &json!(column)), "{code}\n{result:#}");
        let stderr = result["stderr"].as_str().unwrap();
        assert!(stderr.contains(&format!("main.ts:{line}:{column}")), "{stderr}");
        assert!(!stderr.contains("driver"), "{stderr}");
    }
}

#[test]
fn a_failed_import_names_its_place_and_node_warns_of_nothing() {
    for (code, line) in [
        ("const x: number = 1;\nimport { a } from './missing';\na as number", 2),
        ("import {\n  a,\n  type B,\n} from 'no-such-package';\na as B", 4),
        ("const x: number = 1;\nconst m = await import('no-such-package') as any", 2),
        ("const x: number = 1;\nconst m = require('no-such-package') as any", 2),
    ] {
        let result = result(code);
        assert_eq!(outcome(&result), "failed", "{result:#}");
        assert_eq!(result["error"]["line"], line, "{code}\n{result:#}");
        let stderr = result["stderr"].as_str().unwrap();
        assert!(stderr.starts_with(&format!("/workspace/main.ts:{line}\n")), "{stderr}");
        assert!(!stderr.contains("Warning"), "{stderr}");
    }
}

#[test]
fn values_variables_and_unicode_are_as_in_javascript() {
    let options = ["--var", "given={\"ü\":[1,null]}"];
    let code =
        "declare const given: { ü: unknown[] }\nconst wörd: string = '🐍'\n;({ ...given, wörd }) as object";
    let result = run_json(one_user(), "typescript", code, &options);
    assert_eq!(result["value"]["json"], json!({"ü": [1, null], "wörd": "🐍"}), "{result:#}");
}

#[test]
fn deep_nesting_kills_only_the_parser() {
    for user in users() {
        let deep = readable_file("typescript-nested.ts", "[".repeat(100_000).as_bytes());
        let args = ["run", "typescript", "--json", deep.to_str().unwrap()];
        let ended = Palisade::new(Build::Real, user, &args).end();
        let result: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(outcome(&result), "compile_failed", "{result:#}");
        assert!(result["error"]["message"].as_str().unwrap().contains("nested"), "{result:#}");
    }
}

#[test]
fn a_long_file_keeps_its_lines() {
    let long: String =
        (0..10_000).map(|number| format!("const v{number}: number = {number} as number\n")).collect();
    let file = readable_file("typescript-long.ts", format!("{long}console.log(v9999)\nboom()").as_bytes());
    let args = ["run", "typescript", "--json", file.to_str().unwrap()];
    let ended = Palisade::new(Build::Real, one_user(), &args).end();
    let result: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(
        (&result["stdout"], &result["error"]["line"]),
        (&json!("9999\n"), &json!(10_002)),
        "{result:#}"
    );
}

#[test]
fn limits_hold_while_a_program_runs() {
    let result =
        run_json(one_user(), "typescript", "for (;;) { let x: number = 1 }", &["--timeout", "800ms"]);
    assert_eq!(outcome(&result), "timed_out");
}

#[test]
fn our_own_executable_cannot_be_changed_from_inside() {
    for user in users() {
        let code = "const fs = require('fs'); const tries: string[] = [];\n\
            for (const act of [() => fs.writeFileSync('/palisade/palisade', 'x'), () => fs.openSync('/palisade/palisade', 'r+'),\n\
              () => fs.unlinkSync('/palisade/palisade'), () => fs.renameSync('/palisade/palisade', '/palisade/x'),\n\
              () => fs.chmodSync('/palisade/palisade', 0o777), () => fs.writeFileSync('/palisade/new', 'x'), () => fs.truncateSync('/palisade/palisade')]) {\n\
              try { act(); tries.push('DONE') } catch (e: any) { tries.push(e.code) } }\nconsole.log(tries.includes('DONE'), tries.length)";
        assert_eq!(completed(user, "typescript", code, &[]), "false 7\n");
    }
}
