//! The packages that agents ask for most: each is imported from a layer and used, while no mirror answers.
//!
//! The layers are those that `fetch.sh` made from the machine's registries. Where it could not, the tests say so and prove
//! nothing.

use std::time::Duration;

use harness::{Build, Ended, Palisade, users};
use serde_json::Value;

use super::environment::fetched;

// The sets that fetch.sh asks for.

const PYTHON: [&str; 10] = [
    "httpx",
    "lxml",
    "matplotlib",
    "numpy",
    "openpyxl",
    "pandas",
    "pillow",
    "requests",
    "scikit-learn",
    "scipy",
];
const GO: [&str; 4] =
    ["github.com/google/uuid", "github.com/spf13/cobra", "golang.org/x/text", "gopkg.in/yaml.v3"];
const JAVASCRIPT: [&str; 4] = ["axios", "lodash", "typescript", "zod"];
/// Nothing listens here: a program that needs the mirror fails.
const NO_MIRROR: &str = "http://127.0.0.1:9";
/// Every module must come from the layer, and not from the host.
const FROM_LAYER: &str = "import importlib, sys\ndef layer(name):\n    module = importlib.import_module(name)\n    \
                          assert module.__file__.startswith('/palisade/packages/python/'), module.__file__\n    return module\n";
/// The same for `require`.
const REQUIRED: &str = "function layer(name) { const file = require.resolve(name);\n\
                        if (!file.startsWith('/node_modules/')) throw new Error(file); return require(name); }\n";

fn run(language: &str, code: &str) -> Option<Ended> {
    let (from, packages) = match language {
        "python" => ("pypi", &PYTHON[..]),
        "go" => ("go", &GO[..]),
        _ => ("npm", &JAVASCRIPT[..]),
    };
    let state_dir = fetched(from)?;
    let named: Vec<&str> = packages.iter().flat_map(|package| ["--package", package]).collect();
    let mirrors = format!("pypi={NO_MIRROR}/simple,npm={NO_MIRROR}/npm,go={NO_MIRROR}");
    let run = Palisade::new(Build::Real, users()[0], &["run", language, "--json", "--timeout", "60s"]);
    let run = run.args(&named).args(&["-c", code]);
    let ended = run
        .env("PALISADE_PACKAGES_ENABLED", "true")
        .env("PALISADE_PACKAGES_MIRRORS", &mirrors)
        .env("PALISADE_STATE_DIR", state_dir.to_str().unwrap())
        .within(harness::patience(Duration::from_secs(120)))
        .end();
    Some(ended)
}

#[track_caller]
fn prints(ended: Option<Ended>, wanted: &str) {
    let Some(ended) = ended else { return };
    let result: Value = serde_json::from_str(&ended.stdout).expect(&ended.stderr);
    assert_eq!(
        (&result["outcome"], &result["stdout"]),
        (&"completed".into(), &format!("{wanted}\n").into()),
        "{result:#}"
    );
}

#[track_caller]
fn python(code: &str, wanted: &str) {
    prints(run("python", &format!("{FROM_LAYER}{code}")), wanted);
}

#[track_caller]
fn javascript(code: &str, wanted: &str) {
    prints(run("javascript", &format!("{REQUIRED}{code}")), wanted);
}

#[test]
fn numpy_solves_equations() {
    let code = "n = layer('numpy')\na = n.array([[2.0, 1.0], [1.0, 3.0]])\nprint(n.linalg.solve(a, n.array([5.0, 10.0])).round(6).tolist())";
    python(code, "[1.0, 3.0]");
}

#[test]
fn pandas_groups_a_table() {
    let code = "import io\np = layer('pandas')\nt = p.read_csv(io.StringIO('g,v\\na,1\\nb,2\\na,3\\n'))\n\
                print(t.groupby('g').v.sum().to_dict(), p.Timestamp('2024-07-01', tz='Europe/Berlin').utcoffset())";
    python(code, "{'a': 4, 'b': 2} 2:00:00");
}

#[test]
fn matplotlib_draws_an_image() {
    let code = "layer('matplotlib')\nimport matplotlib.pyplot as plt\nplt.plot([1, 4, 9]); plt.title('grüße')\nplt.savefig('f.png')\n\
                print(open('f.png', 'rb').read(4))";
    python(code, "b'\\x89PNG'");
}

#[test]
fn scipy_integrates_and_minimises() {
    let code = "layer('scipy')\nfrom scipy import integrate, optimize\n\
                print(round(integrate.quad(lambda x: x * x, 0, 3)[0], 6), round(optimize.brentq(lambda x: x * x - 4, 0, 9), 6))";
    python(code, "9.0 2.0");
}

#[test]
fn scikit_learn_fits_a_line() {
    let code = "layer('sklearn')\nfrom sklearn.linear_model import LinearRegression\n\
                print(LinearRegression().fit([[0], [1], [2]], [1, 3, 5]).predict([[3]]).round(6).tolist())";
    python(code, "[7.0]");
}

/// The program's own server: a sandbox has no other network.
const SERVER: &str = "import http.server, threading\nclass H(http.server.BaseHTTPRequestHandler):\n    \
                      def do_GET(s): s.send_response(200); s.end_headers(); s.wfile.write(b'{\"a\": 1}')\n    def log_message(s, *a): pass\n\
                      s = http.server.HTTPServer(('127.0.0.1', 0), H); threading.Thread(target=s.serve_forever, daemon=True).start()\n\
                      url = f'http://127.0.0.1:{s.server_port}/'\n";

#[test]
fn requests_gets_a_document() {
    python(&format!("{SERVER}print(layer('requests').get(url, timeout=10).json())"), "{'a': 1}");
}

#[test]
fn httpx_gets_a_document_with_and_without_async() {
    let code = "import asyncio\nh = layer('httpx')\nasync def ask():\n    async with h.AsyncClient() as c: return (await c.get(url)).json()\n\
                print(h.get(url).json(), asyncio.run(ask()))";
    python(&format!("{SERVER}{code}"), "{'a': 1} {'a': 1}");
}

#[test]
fn lxml_parses_and_selects() {
    let code = "layer('lxml')\nfrom lxml import etree, html\n\
                print(etree.fromstring('<a><b>1</b><b>2</b></a>').xpath('sum(//b)'), html.fromstring('<p>x<i>y</i>').text_content())";
    python(code, "3.0 xy");
}

#[test]
fn pillow_scales_an_image() {
    let code = "layer('PIL')\nfrom PIL import Image\nImage.new('RGB', (40, 20), 'red').resize((4, 2)).save('i.jpg')\n\
                with Image.open('i.jpg') as i: print(i.size, i.format)";
    python(code, "(4, 2) JPEG");
}

#[test]
fn openpyxl_writes_a_workbook_that_pandas_reads() {
    let code = "o = layer('openpyxl')\nb = o.Workbook(); b.active.append(['x', 'y']); b.active.append([1, 2]); b.save('b.xlsx')\n\
                print(layer('pandas').read_excel('b.xlsx').to_dict('records'))";
    python(code, "[{'x': 1, 'y': 2}]");
}

#[test]
fn lodash_groups() {
    javascript(
        "const _ = layer('lodash'); console.log(JSON.stringify(_.groupBy([1, 2, 3], (n) => n % 2)));",
        r#"{"0":[2],"1":[1,3]}"#,
    );
}

#[test]
fn axios_gets_a_document() {
    let code = "const axios = layer('axios');\n\
                const server = require('http').createServer((q, a) => a.end('{\"a\":1}')).listen(0, '127.0.0.1', async () => {\n\
                const answer = await axios.get(`http://127.0.0.1:${server.address().port}/`);\n\
                console.log(answer.status, answer.data.a); server.close(); });";
    javascript(code, "200 1");
}

#[test]
fn zod_refuses_a_wrong_type() {
    let code = "const { z } = layer('zod'); const shape = z.object({ a: z.number() });\n\
                console.log(shape.safeParse({ a: 1 }).success, shape.safeParse({ a: 'x' }).success);";
    javascript(code, "true false");
    prints(
        run(
            "typescript",
            "import { z } from 'zod';\nconst n: number = z.number().parse(3);\nconsole.log(n);",
        ),
        "3",
    );
}

#[test]
fn typescript_compiles_a_program() {
    let code = "layer('typescript'); require('fs').writeFileSync('a.ts', 'export const a: number = 1;');\n\
                require('child_process').execFileSync('tsc', ['a.ts', '--target', 'es2020', '--module', 'commonjs', '--outDir', 'o']);\n\
                console.log(require('./o/a.js').a);";
    javascript(code, "1");
}

#[test]
fn uuid_parses_and_yaml_reads_a_document() {
    let code = "package main\nimport (\n\"fmt\"\n\"github.com/google/uuid\"\n\"gopkg.in/yaml.v3\"\n)\n\
                func main() {\nvar read struct{ Names []string }\n\
                if err := yaml.Unmarshal([]byte(\"names: [a, b]\"), &read); err != nil { panic(err) }\n\
                fmt.Println(uuid.MustParse(\"6ba7b810-9dad-11d1-80b4-00c04fd430c8\").Version(), read.Names)\n}";
    prints(run("go", code), "VERSION_1 [a b]");
}

#[test]
fn cobra_reads_a_command_line_and_text_writes_titles() {
    let code = "package main\nimport (\n\"fmt\"\n\"github.com/spf13/cobra\"\n\"golang.org/x/text/cases\"\n\"golang.org/x/text/language\"\n)\n\
                func main() {\nvar name string\n\
                command := &cobra.Command{Use: \"greet\", Run: func(*cobra.Command, []string) {\n\
                fmt.Println(cases.Title(language.Dutch).String(name))\n}}\n\
                command.Flags().StringVar(&name, \"name\", \"\", \"\")\ncommand.SetArgs([]string{\"--name\", \"ijsland\"})\n\
                if err := command.Execute(); err != nil { panic(err) }\n}";
    prints(run("go", code), "IJsland");
}
