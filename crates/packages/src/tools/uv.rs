//! uv: its wheel is the first blob, pinned by digest. It is unpacked behind the wall, once.

use engine::packages::PackageVersion;
use sandbox::Layer;

use super::{Job, TMP_MARK, variables};
use crate::blobs::{Algorithm, BlobId};
use crate::broker;
use crate::layers::{Harvested, InUse};

pub(crate) const VERSION: &str = "0.13.8";
/// Where the builder sees it.
const AT: &str = "/opt/palisade/tools";
const PRODUCT: &str = "product";
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

/// Whether the product of [`unpack`] is what a builder needs.
pub(crate) fn is_tool(made: &Harvested) -> bool {
    made.entries.keys().map(String::as_str).eq(["uv"])
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
        executable.as_str(),
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
        "--compile-bytecode",
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
        // The times of files in a layer are all the same, so a time cannot say whether code has changed.
        ("PYC_INVALIDATION_MODE", "UNCHECKED_HASH"),
        ("UV_HTTP_TIMEOUT", "600"),
        ("UV_HTTP_RETRIES", "0"),
        ("NO_PROXY", "*"),
    ]);
    Job { language: "python", argv, env, files, layers: vec![tool], in_use: Some(in_use), product: PRODUCT }
}
