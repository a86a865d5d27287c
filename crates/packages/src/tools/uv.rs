//! uv: its wheel is the first blob, pinned by digest. It is unpacked behind the wall, once.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use engine::packages::PackageVersion;
use sandbox::Layer;
use sha2::{Digest, Sha256};

use super::{Job, TMP_MARK, variables};
use crate::blobs::{Algorithm, BlobId};
use crate::broker;
use crate::files::hex;
use crate::layers::{Form, Harvested, InUse};

pub(crate) const VERSION: &str = "0.13.8";
/// Where the builder sees it.
const AT: &str = "/opt/palisade/tools";
const PRODUCT: &str = "product";
/// How much of the executable is read at once.
const PART_BYTES: usize = 256 << 10;
/// Writes the executable of the wheel at an address to `product/uv`.
const UNPACK: &str = "import io, os, sys, urllib.request as u, zipfile
wheel = u.build_opener(u.ProxyHandler({})).open(sys.argv[1]).read()
archive = zipfile.ZipFile(io.BytesIO(wheel))
name = next(name for name in archive.namelist() if name.endswith('.data/scripts/uv'))
os.mkdir('product')
with open('product/uv', 'wb') as out:
    out.write(archive.read(name))
os.chmod('product/uv', 0o755)
";

/// Runs uv, and compiles what it installed.
const INSTALL: &str = include_str!("install.py");

/// The digest of the executable in the wheel of this machine.
const EXECUTABLE: &str = if cfg!(target_arch = "aarch64") {
    "5aa4427bd923cfdca2d56a3577f60d8fa7825aa3b496fef975dfd6f03db57d28"
} else {
    "4a7607589912d9c20e86b860b032f7c7f2913c9a3e76f46aef136885387452b8"
};

/// The wheel of this machine: its file name and digest.
pub(crate) fn wheel() -> Option<(&'static str, BlobId)> {
    let (file, digest) = match std::env::consts::ARCH {
        "x86_64" => (
            "uv-0.13.8-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
            "e18a57b8b352eb7c8feb317b9f6f533c8f0ad9673fd6cf34bbe3cf1a9f6a8984",
        ),
        "aarch64" => (
            "uv-0.13.8-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64.whl",
            "0b3e8b1a4f5e405e31e2ff33de8af4744831e9f7338539671efbd8c3c94e791d",
        ),
        _ => return None,
    };
    Some((file, BlobId::new(Algorithm::Sha256, digest)?))
}

/// Unpacks the wheel.
pub(crate) fn unpack(interpreter: &str, file: &str, wheel: &BlobId) -> Job {
    let url = format!("{}/files/{}/{file}", broker::base(), wheel.digest());
    Job {
        language: "python",
        argv: [interpreter, "-I", "-S", "-c", UNPACK, &url].map(str::to_owned).to_vec(),
        env: variables(&[]),
        files: Vec::new(),
        layers: Vec::new(),
        in_use: None,
        product: PRODUCT,
    }
}

/// Whether the product of [`unpack`] is the executable of the wheel and nothing else. The interpreter of one wall unpacks it
/// for all of them.
pub(crate) fn is_tool(made: &Harvested) -> bool {
    let is_executable =
        |form: &Form| matches!(form, Form::File { is_executable: true, digest, .. } if digest == EXECUTABLE);
    made.entries.len() == 1 && made.entries.get("uv").is_some_and(is_executable)
}

/// Whether that is the digest of this machine's wheel.
pub(crate) fn is_pinned(wheel_digest: &str) -> bool {
    wheel().is_some_and(|(_, wheel)| wheel.digest() == wheel_digest)
}

/// Whether the files of a layer are the executable of this machine's wheel and nothing else.
pub(crate) fn is_executable_of(files: &Path) -> io::Result<bool> {
    let names: Vec<_> =
        fs::read_dir(files)?.map(|entry| entry.map(|entry| entry.file_name())).collect::<Result<_, _>>()?;
    let executable = files.join("uv");
    if names != ["uv"] || !fs::symlink_metadata(&executable)?.is_file() {
        return Ok(false);
    }
    let mut hasher = Sha256::new();
    let mut reader = BufReader::with_capacity(PART_BYTES, File::open(executable)?);
    loop {
        let part = reader.fill_buf()?;
        if part.is_empty() {
            return Ok(hex(&hasher.finalize()) == EXECUTABLE);
        }
        hasher.update(part);
        let count = part.len();
        reader.consume(count);
    }
}

/// How packages are installed.
pub(crate) struct Install<'a> {
    pub(crate) interpreter: &'a str,
    pub(crate) requirements: &'a [String],
    /// Versions that must be kept.
    pub(crate) present: &'a [PackageVersion],
    pub(crate) source_builds: bool,
}

/// Resolves and installs.
pub(crate) fn install(what: &Install<'_>, (mut tool, in_use): (Layer, InUse)) -> Job {
    tool.target = AT.into();
    let index = format!("{}/simple/", broker::base());
    let executable = format!("{AT}/uv");
    let mut argv: Vec<String> = [
        what.interpreter,
        "-I",
        "-S",
        "-c",
        INSTALL,
        "/workspace/product",
        &executable,
        "pip",
        "install",
        "--target",
        "/workspace/product",
        "--python",
        what.interpreter,
        "--index-url",
        &index,
        "--no-config",
        "--no-python-downloads",
        "--link-mode",
        "hardlink",
        "--color",
        "never",
        "--no-progress",
        "-r",
        "/workspace/requirements.txt",
    ]
    .map(str::to_owned)
    .to_vec();
    if !what.source_builds {
        argv.extend(["--only-binary", ":all:"].map(str::to_owned));
    }
    let mut lines = what.requirements.join("\n");
    lines.push('\n');
    let mut files = vec![
        ("requirements.txt".to_owned(), lines.into_bytes()),
        (TMP_MARK.to_owned(), Vec::new()),
        // The product exists even if every requirement has a marker that is false.
        (format!("{PRODUCT}/.lock"), Vec::new()),
    ];
    if !what.present.is_empty() {
        let line = |one: &PackageVersion| format!("{}=={}\n", one.name, one.version);
        files.push((
            "constraints.txt".to_owned(),
            what.present.iter().map(line).collect::<String>().into_bytes(),
        ));
        argv.extend(["-c", "/workspace/constraints.txt"].map(str::to_owned));
    }
    let env = variables(&[
        ("UV_CACHE_DIR", "/workspace/cache"),
        ("TMPDIR", "/workspace/tmp"),
        ("UV_HTTP_TIMEOUT", "600"),
        ("UV_HTTP_RETRIES", "0"),
        ("NO_PROXY", "*"),
    ]);
    Job { language: "python", argv, env, files, layers: vec![tool], in_use: Some(in_use), product: PRODUCT }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::process::ExitStatusExt;
    use std::path::Path;
    use std::process::{Command, ExitStatus};

    use super::{EXECUTABLE, INSTALL, is_tool};
    use crate::layers::{Form, Harvested};

    fn installed(product: &Path, command: &[&str]) -> ExitStatus {
        let python = ["-I", "-S", "-c", INSTALL];
        Command::new("/usr/bin/python3").args(python).arg(product).args(command).status().unwrap()
    }

    #[test]
    fn modules_are_compiled_except_those_of_tests_and_those_that_cannot_be() {
        let product = std::env::temp_dir().join(format!("palisade-install-{}", std::process::id()));
        fs::create_dir_all(product.join("package/tests")).unwrap();
        let write = |name: &str, text: &str| fs::write(product.join("package").join(name), text).unwrap();
        write("module.py", "x = 1\n");
        write("wrong.py", "x = (\n");
        write("null.py", "\0");
        write("tests/checks.py", "x = 1\n");
        write("data.txt", "x = 1\n");
        let ended = installed(&product, &["/bin/true"]);
        let listed = |folder: &str| {
            let entries = fs::read_dir(product.join(folder)).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        let (compiled, of_tests) = (listed("package/__pycache__"), listed("package/tests"));
        let code = fs::read(product.join("package/__pycache__").join(&compiled[0])).unwrap();
        fs::remove_dir_all(&product).unwrap();
        assert!(ended.success(), "{ended}");
        assert_eq!(compiled.len(), 1, "{compiled:?}");
        assert!(compiled[0].starts_with("module.cpython-"), "{compiled:?}");
        assert_eq!(of_tests, ["checks.py"]);
        // PEP 552: code with a hash that is not checked.
        assert_eq!(code[4..8], [1, 0, 0, 0]);
    }

    #[test]
    fn the_resolver_is_the_pinned_executable_and_nothing_else() {
        let form = |digest: &str| Form::File { is_executable: true, bytes: 1, digest: digest.to_owned() };
        let is_taken = |entries: &[(&str, Form)]| {
            let entries = entries.iter().map(|(path, form)| ((*path).to_owned(), form.clone())).collect();
            is_tool(&Harvested { entries, ..Harvested::default() })
        };
        let other = "b".repeat(64);
        assert!(is_taken(&[("uv", form(EXECUTABLE))]));
        assert!(!is_taken(&[("uv", form(&other))]));
        assert!(!is_taken(&[("uv", Form::Link { target: "x".to_owned() })]));
        assert!(!is_taken(&[("uv", form(EXECUTABLE)), ("x", form(&other))]));
        assert!(!is_taken(&[]));
    }

    #[test]
    fn the_end_of_the_installer_is_the_end_of_the_job() {
        let nothing = Path::new("/nonexistent");
        assert_eq!(installed(nothing, &["/bin/sh", "-c", "exit 7"]).code(), Some(7));
        assert_eq!(installed(nothing, &["/bin/sh", "-c", "kill -9 $$"]).signal(), Some(9));
        assert_ne!(installed(nothing, &["/nonexistent/uv"]).code(), Some(0));
    }
}
