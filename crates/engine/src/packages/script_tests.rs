//! Tests of what a program asks for.

use super::*;

fn asked(code: &str) -> Vec<String> {
    let Requested { dependencies, installs, .. } = asked_in_code("python", code).unwrap();
    dependencies.into_iter().chain(installs).collect()
}

#[test]
fn lines_that_install_are_found_in_all_their_forms() {
    for line in [
        "%pip install pandas",
        "!pip install pandas",
        "! pip3 install -q pandas",
        "pip install pandas",
        "!python -m pip install --upgrade pandas",
        "!python3.11 -m pip install pandas --quiet",
        "%uv pip install pandas",
        "!pip install 'pandas'",
        "!pip install \"pandas\" > /dev/null 2>&1",
        "!pip install pandas 2>/dev/null",
        "!pip install pandas  # for tables",
        "%pip install \\\n  pandas",
        "  %pip install pandas",
    ] {
        assert_eq!(asked(&format!("{line}\nimport pandas")), ["pandas"], "{line}");
    }
    assert_eq!(
        asked("import os\n!pip install -U 'pandas>=2' \"requests[socks]\" httpx==0.27.*"),
        ["pandas>=2", "requests[socks]", "httpx==0.27.*"]
    );
}

#[test]
fn what_only_looks_like_an_installation_is_left_alone() {
    for code in [
        "text = '''\npip install pandas\n'''",
        "\"\"\"Usage:\npip install pandas\n\"\"\"",
        "r'''\\'''\n\"\"\"\npip install pandas\n\"\"\"",
        "x = [\n%pip install pandas\n]",
        "x = 1 + \\\npip install pandas",
        "# %pip install pandas",
        "if True:\n    !pip install pandas",
        "%%bash\npip install pandas",
        "!pip install -r requirements.txt",
        "!pip install -e .",
        "!pip install --index-url https://example.org/simple pandas",
        "!pip install $NAME",
        "!pip install {name}",
        "!pip install pandas && rm x",
        "!pip install pandas; ls",
        "!pip install 'pandas",
        "!pip install https://example.org/x.whl",
        "!pip download pandas",
        "pip = install",
        "!echo pip install pandas",
    ] {
        assert_eq!(asked(code), Vec::<String>::new(), "{code}");
    }
    assert!(asked_in_code("bash", "pip install pandas").unwrap().installs.is_empty());
}

#[test]
fn strings_end_where_python_ends_them() {
    for code in [
        "x = 'don\\'t'\n%pip install a",
        "x = \"it's\"\n%pip install a",
        "x = 'unterminated\n%pip install a",
        "x = '''a''' # '''\n%pip install a",
        "!echo don't\n%pip install a",
        "x = (1,\n 2)\n%pip install a",
        "x = 'a\\\nb'\n%pip install a",
    ] {
        assert_eq!(asked(code), ["a"], "{code}");
    }
}

#[test]
fn script_metadata_is_read() {
    let code = "# /// script\n# requires-python = \">=3.9\"\n# dependencies = [\n#   \"requests<3\",\n#   \"rich\",\n# ]\n# ///\nimport requests\n";
    let found = asked_in_code("python", code).unwrap();
    assert_eq!(found.dependencies, ["requests<3", "rich"]);
    assert_eq!(found.requires_python.as_deref(), Some(">=3.9"));
    let with_tools = "# /// script\n# dependencies = []\n#\n# [tool.x]\n# y = 1\n# ///\n";
    assert_eq!(asked_in_code("python", with_tools).unwrap(), Requested::default());
    assert!(asked("# /// script\n# dependencies = [\"a\"]\nimport a").is_empty(), "it has no end");
    assert!(asked("# /// other\n# dependencies = [\"a\"]\n# ///").is_empty());
    let crlf = "# /// script\r\n# dependencies = [\"a\"]\r\n# ///\r\n";
    assert_eq!(asked(crlf), ["a"]);
}

#[test]
fn metadata_that_is_wrong_is_refused_with_its_line() {
    let broken = asked_in_code("python", "import os\n# /// script\n# x = 1\n# dependencies = oops\n# ///\n")
        .unwrap_err();
    assert_eq!((broken.code.as_str(), broken.line), (BAD_PACKAGE, Some(4)));
    let twice = "# /// script\n# dependencies = []\n# ///\n\n# /// script\n# dependencies = []\n# ///\n";
    assert_eq!(asked_in_code("python", twice).unwrap_err().line, Some(5));
}

#[test]
fn versions_of_python_are_compared() {
    for (specifier, is_fine) in [
        (">=3.9", true),
        (">=3.11.2", true),
        (">=3.12", false),
        ("<4", true),
        (">=3.8,<3.11", false),
        ("==3.11.*", true),
        ("==3.10.*", false),
        ("~=3.9", true),
        ("~=3.12", false),
        ("!=3.11.2", false),
        ("", true),
        ("something", true),
        (">=", true),
    ] {
        assert_eq!(accepts_version(specifier, "3.11.2"), is_fine, "{specifier}");
    }
}
