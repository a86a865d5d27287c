//! What programs show comes back bounded and checked, whoever says it.

use std::fs;
use std::path::Path;

use functional::own_folder;
use harness::{Build, Palisade, run_json, users};
use serde_json::{Value, json};

/// Writes words of the program's choice on the driver's own channel.
const FORGE: &str = "import os\ndef say(*fields):\n    data = b''.join(f.encode() + b'\\0' for f in fields)\n    \
                     data = b'%d\\0' % len(fields) + data\n    while data: data = data[os.write(100, data):]\n";

#[test]
fn forged_displays_are_shown_or_left_out_and_decide_nothing() {
    let code = format!(
        "{FORGE}say('display', 'image/png', 'bm8gaW1hZ2U=', 'no image')\nsay('display', 'image/png', '!!', '')\n\
         say('display', 'application/x-sh', 'rm -rf', 'a\\nb')\nsay('display', 'text/html')\nsay('display', '', '', '', '', '')\n\
         say('done', '1', 'ok', '0', '', '', '', '1', '', '')\nraise SystemExit(7)"
    );
    for user in users() {
        let result = run_json(user, "python", &code, &[]);
        assert_eq!((&result["outcome"], &result["exit_code"]), (&json!("failed"), &json!(7)), "as {user:?}");
        let shown = json!([{ "mime": "text/plain", "size_bytes": 6, "text": "a b" }]);
        assert_eq!(result["displays"], shown, "as {user:?}: {result:#}");
        assert_eq!(result["warnings"].as_array().unwrap().len(), 1, "as {user:?}: {}", result["warnings"]);
    }
}

#[test]
fn a_flood_of_displays_is_bounded_and_the_value_still_comes() {
    let code = format!(
        "{FORGE}for n in range(20): say('display', 'text/plain', 'x' * 1000000, '')\n\
         for n in range(2000): say('display', 'image/png', 'AAAA', '')\nsay('display', 'text/html', 'y' * 4000000, '')\n41 + 1"
    );
    for user in users() {
        let result = run_json(user, "python", &code, &[]);
        assert_eq!((&result["outcome"], &result["value"]["repr"]), (&json!("completed"), &json!("42")));
        let displays = result["displays"].as_array().unwrap();
        let bytes: u64 = displays.iter().map(|display| display["size_bytes"].as_u64().unwrap()).sum();
        assert!(displays.len() <= 16 && bytes <= 8 << 20, "as {user:?}: {} of {bytes} bytes", displays.len());
        assert!(result["warnings"].as_array().unwrap().len() >= 2, "{}", result["warnings"]);
    }
}

#[test]
fn javascript_shows_and_the_command_line_saves() {
    // Nobody overwrites the program's own file of that name.
    let code =
        "require('fs').writeFileSync('display-1.svg', 'own'); display('<svg></svg>'); display('<b>x</b>')";
    for user in users() {
        for language in ["javascript", "typescript"] {
            let folder = own_folder(user, language);
            let result = run_json(user, language, code, &["--output-dir", folder.to_str().unwrap()]);
            assert_eq!(result["displays"][1]["mime"], "text/html", "as {user:?}: {result:#}");
            let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
            let saved = [read("display-1.svg"), read("display-1_.svg"), read("display-2.html")];
            assert_eq!(saved, ["own", "<svg></svg>", "<b>x</b>"], "as {user:?}");
        }
    }
}

/// PATH with the environment of `scripts/setup-tests.sh` in front, if it has these modules.
fn packages(modules: &str) -> Option<String> {
    let bin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-venv/bin");
    let import = ["-I", "-c", &format!("import {modules}")];
    let found = fs::canonicalize(bin).ok().filter(|bin| {
        let mut python = std::process::Command::new(bin.join("python3"));
        python.args(import).output().is_ok_and(|output| output.status.success())
    });
    if found.is_none() {
        eprintln!("SKIPPED: no test environment with {modules}: run scripts/setup-tests.sh");
    }
    found.map(|bin| format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display()))
}

/// Answers of `palisade mcp` to a call of `run` and then to a reading of its first display.
fn over_mcp(path: &str, code: &str) -> (Value, Value) {
    reading(path, code, "uri")
}

/// The same for another address of the first display.
fn reading(path: &str, code: &str, address: &str) -> (Value, Value) {
    use std::io::{BufRead, BufReader, Write};
    use std::process::Stdio;
    let mut command = Palisade::new(Build::Real, users()[0], &["mcp"]).env("PATH", path).into_command();
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut ask = |id: u32, method: &str, params: Value| -> Value {
        writeln!(stdin, "{}", json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .unwrap();
        loop {
            let message: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            if message["id"] == id {
                return message["result"].clone();
            }
        }
    };
    let client = json!({ "name": "test", "version": "1" });
    ask(
        1,
        "initialize",
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client }),
    );
    let arguments = json!({ "language": "python", "code": code, "timeout_ms": 60_000 });
    let answer = ask(2, "tools/call", json!({ "name": "run", "arguments": arguments }));
    let uri = answer["structuredContent"]["displays"][0][address].clone();
    let read = ask(3, "resources/read", json!({ "uri": uri }));
    drop(stdin);
    child.wait().unwrap();
    (answer, read)
}

#[test]
fn a_figure_of_a_program_that_fails_is_an_image_in_the_answer() {
    let Some(path) = packages("matplotlib") else { return };
    let code = "import matplotlib.pyplot as p\np.plot([1, 4, 9]); p.title('squares'); p.show()\n1/0";
    let (answer, read) = over_mcp(&path, code);
    assert_eq!(answer["structuredContent"]["outcome"], "failed", "{answer:#}");
    let text = answer["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("figure 1: image/png, 640x480, ") && text.contains(": squares"), "{text}");
    let image = &answer["content"][1];
    assert_eq!((&image["type"], &image["mimeType"]), (&json!("image"), &json!("image/png")));
    assert!(image["data"].as_str().unwrap().starts_with("iVBORw0KGgo"));
    assert_eq!(read["contents"][0]["blob"], image["data"], "the same by its address");
}

#[test]
fn a_huge_figure_comes_back_within_the_bounds() {
    let Some(path) = packages("matplotlib, numpy") else { return };
    let code = "import matplotlib.pyplot as p, numpy as n\np.figure(figsize=(100, 100)); p.axis('off')\n\
                p.imshow(n.random.default_rng(1).random((1500, 1500, 3))); p.show()";
    let (answer, _) = over_mcp(&path, code);
    let display = &answer["structuredContent"]["displays"][0];
    assert!(display["size_bytes"].as_u64().unwrap() <= 2 << 20, "{display}");
    assert_eq!(answer["content"][1]["type"], "image");
}

#[test]
fn a_table_is_text_for_the_model_and_a_page_for_the_user() {
    let Some(path) = packages("pandas") else { return };
    let (answer, _) = over_mcp(&path, "import pandas\npandas.DataFrame({'a': [1, 2]})");
    assert_eq!(answer["structuredContent"]["value"]["repr"], "   a\n0  1\n1  2", "{answer:#}");
    let page = &answer["content"][1];
    assert_eq!((&page["type"], &page["resource"]["mimeType"]), (&json!("resource"), &json!("text/html")));
    assert_eq!(page["annotations"]["audience"], json!(["user"]), "{page}");
    let data = json!({
        "type": "table", "columns": ["a"], "dtypes": ["int64"], "rows_total": 2, "columns_total": 1, "rows": [[1], [2]]
    });
    assert_eq!(answer["structuredContent"]["displays"][0]["json"], data, "{answer:#}");
    // Data is for programs: the text and the blocks are as without it.
    let content = answer["content"].as_array().unwrap();
    assert!(content.len() == 2 && !content[0]["text"].as_str().unwrap().contains("rows_total"), "{answer:#}");
}

#[test]
fn the_data_of_a_chart_is_in_the_answer_if_it_is_short_and_always_at_its_address() {
    let Some(path) = packages("matplotlib") else { return };
    let code = "import matplotlib.pyplot as p\np.plot([1, 4], label='a'); p.xlabel('t (s)'); p.show()";
    let (answer, _) = over_mcp(&path, code);
    let chart = &answer["structuredContent"]["displays"][0]["json"]["charts"][0];
    assert_eq!((&chart["type"], &chart["x_unit"]), (&json!("line"), &json!("s")), "{answer:#}");
    let series = json!([{ "type": "line", "label": "a", "x": [0.0, 1.0], "y": [1, 4] }]);
    assert_eq!(chart["series"], series);
    let (answer, read) = reading(&path, "import matplotlib.pyplot as p\np.plot(range(5000))", "json_uri");
    assert_eq!(answer["structuredContent"]["displays"][0].get("json"), None, "{answer:#}");
    let data: Value = serde_json::from_str(read["contents"][0]["text"].as_str().unwrap()).unwrap();
    let series = &data["charts"][0]["series"][0];
    assert_eq!((&series["points_total"], &series["truncated"]), (&json!(5000), &json!(true)));
    assert_eq!(series["y"].as_array().unwrap().len(), 1000);
}

#[test]
fn forged_data_is_an_object_of_bounded_size_or_left_out() {
    let code = format!(
        "{FORGE}for data in ('{{\"a\": 1}}', '[1]', '{{\"a\"', '{{\"a\": \"' + 'x' * 300000 + '\"}}'):\n    \
         say('display', 'text/html', '<b>', 'x', data)"
    );
    for user in users() {
        let result = run_json(user, "python", &code, &[]);
        let displays = result["displays"].as_array().unwrap();
        let data: Vec<&Value> = displays.iter().map(|display| &display["json"]).collect();
        let expected = [&json!({ "a": 1 }), &Value::Null, &Value::Null, &Value::Null];
        assert_eq!(data, expected, "as {user:?}: {result:#}");
    }
}

#[test]
fn a_plotly_figure_is_shown_without_a_network() {
    let Some(path) = packages("plotly") else { return };
    let code = "import plotly.graph_objects as g\nf = g.Figure(g.Bar(y=[2, 3])); f.show()\nprint('on')\nf";
    let (answer, _) = over_mcp(&path, code);
    assert_eq!(answer["structuredContent"]["stdout"], "on\n", "{answer:#}");
    let displays = answer["structuredContent"]["displays"].as_array().unwrap();
    assert_eq!((displays.len(), &displays[0]["text"]), (2, &json!("plotly figure: bar")), "{answer:#}");
}

#[test]
fn a_value_of_javascript_displays_itself() {
    let method = "[Symbol.for('Jupyter.display')]";
    for user in users() {
        for (language, body) in [
            ("javascript", "return { 'text/plain': 'x', 'text/html': '<b>x</b>' }"),
            ("typescript", "return new Promise((done) => setTimeout(done, 20, { 'text/html': '<b>x</b>' }))"),
        ] {
            let result = run_json(user, language, &format!("({{ {method}() {{ {body} }} }})"), &[]);
            assert_eq!(result["displays"][0]["mime"], "text/html", "as {user:?}: {result:#}");
            assert_eq!(result["value"]["mime"], "text/html", "as {user:?}: {result:#}");
        }
    }
}

#[test]
fn data_of_a_figure_never_fails_or_holds_up_its_picture() {
    let Some(path) = packages("matplotlib, numpy") else { return };
    // A list of a million dates, an artist that raises, a kind of drawing that has no data.
    let code = "import matplotlib.pyplot as p, numpy as n, time\nf, a = p.subplots(1, 3)\n\
                a[0].plot(n.datetime64('2024-01-01') + n.arange(10**6).astype('m8[s]'), n.zeros(10**6))\n\
                a[1].boxplot([1, 2, 3]); a[1].get_lines()[0].get_xydata = lambda: 1 / 0\n\
                a[2].contour(n.eye(9)); a[2].set_title('c'); f.savefig('a.png')\n\
                b = time.process_time(); f.savefig('a.png'); d = time.process_time()\n\
                p.show(); print(time.process_time() - d < 3 * (d - b) + 1)";
    let (answer, _) = over_mcp(&path, code);
    assert_eq!(answer["structuredContent"]["stdout"], "True\n", "{answer:#}");
    assert_eq!(answer["content"][1]["type"], "image", "{answer:#}");
}

#[test]
fn charts_tell_boxes_dates_categories_and_what_they_do_not_know() {
    let Some(path) = packages("matplotlib") else { return };
    let code = "import matplotlib.pyplot as p, datetime as t\nf, a = p.subplots(1, 3)\na[0].boxplot([1, 2, 2, 3, 4, 4, 5, 9])\n\
                a[1].scatter([t.datetime(2024, 1, 1)], ['x']); a[2].add_artist(p.Circle((0, 0), 1)); p.show()";
    let (answer, _) = reading(&path, code, "json_uri");
    let charts = &answer["structuredContent"]["displays"][0]["json"]["charts"];
    let types: Vec<&Value> = charts.as_array().unwrap().iter().map(|chart| &chart["type"]).collect();
    assert_eq!(types, ["box_and_whisker", "scatter", "unknown"], "{answer:#}");
    let found = json!({
        "label": "1", "min": 1.0, "first_quartile": 2.0, "median": 3.5, "third_quartile": 4.25, "max": 5.0, "outliers": [9.0]
    });
    assert_eq!(charts[0]["series"][0]["boxes"], json!([found]));
    assert_eq!((&charts[1]["x_scale"], &charts[1]["y_scale"]), (&json!("datetime"), &json!("categorical")));
    let points = (&charts[1]["series"][0]["x"], &charts[1]["series"][0]["y"]);
    assert_eq!(points, (&json!(["2024-01-01T00:00:00"]), &json!(["x"])));
}
