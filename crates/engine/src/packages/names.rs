//! The package that brings a module, where the two have different names.

use super::Ecosystem;

/// Modules of Python whose packages have other names.
const OTHER_NAMES: [(&str, &str); 41] = [
    ("Bio", "biopython"),
    ("Crypto", "pycryptodome"),
    ("Cryptodome", "pycryptodomex"),
    ("Levenshtein", "levenshtein"),
    ("MySQLdb", "mysqlclient"),
    ("OpenSSL", "pyopenssl"),
    ("PIL", "pillow"),
    ("attr", "attrs"),
    ("bs4", "beautifulsoup4"),
    ("community", "python-louvain"),
    ("cv2", "opencv-python-headless"),
    ("dateutil", "python-dateutil"),
    ("dns", "dnspython"),
    ("docx", "python-docx"),
    ("dotenv", "python-dotenv"),
    ("faiss", "faiss-cpu"),
    ("fitz", "pymupdf"),
    ("git", "gitpython"),
    ("github", "pygithub"),
    ("google.protobuf", "protobuf"),
    ("grpc", "grpcio"),
    ("imblearn", "imbalanced-learn"),
    ("jose", "python-jose"),
    ("jwt", "pyjwt"),
    ("kafka", "kafka-python"),
    ("ldap", "python-ldap"),
    ("magic", "python-magic"),
    ("mpl_toolkits", "matplotlib"),
    ("multipart", "python-multipart"),
    ("nacl", "pynacl"),
    ("pkg_resources", "setuptools"),
    ("pptx", "python-pptx"),
    ("psycopg2", "psycopg2-binary"),
    ("serial", "pyserial"),
    ("skimage", "scikit-image"),
    ("sklearn", "scikit-learn"),
    ("slugify", "python-slugify"),
    ("socks", "pysocks"),
    ("usb", "pyusb"),
    ("yaml", "pyyaml"),
    ("zmq", "pyzmq"),
];

/// The package that most likely brings this module; `None` if the name cannot be one of a package.
pub(crate) fn package_of(ecosystem: Ecosystem, module: &str) -> Option<String> {
    let name = match ecosystem {
        Ecosystem::Pypi => {
            let other = OTHER_NAMES.iter().find(|(known, _)| *known == module);
            match other {
                Some((_, package)) => (*package).to_owned(),
                // Python names a part of a package only if the package itself is there.
                None if module.contains('.') => return None,
                None => module.replace('_', "-").to_lowercase(),
            }
        }
        Ecosystem::Npm => {
            let parts = if module.starts_with('@') { 2 } else { 1 };
            module.split('/').take(parts).collect::<Vec<_>>().join("/")
        }
        // The resolver finds the module that has a package.
        Ecosystem::Go => module.to_owned(),
    };
    is_package_name(ecosystem, &name).then_some(name)
}

/// The name in a requirement of Python, as indexes compare it.
pub(crate) fn package_name(requirement: &str) -> String {
    let end = requirement.find(['[', '<', '>', '=', '!', '~', ';', '@', ' ']).unwrap_or(requirement.len());
    requirement[..end].trim().to_lowercase().replace(['_', '.'], "-")
}

/// Whether a registry could have a package of that name.
fn is_package_name(ecosystem: Ecosystem, name: &str) -> bool {
    const NAME_BYTES_MAX: usize = 100;
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_part = |part: &str| {
        part.starts_with(|first: char| first.is_ascii_alphanumeric()) && part.bytes().all(is_letter)
    };
    if ecosystem == Ecosystem::Go {
        // Packages of the standard library have no dot in their first part.
        let has_host = name.split_once('/').is_some_and(|(host, _)| host.contains('.'));
        return has_host && name.split('/').all(is_part) && name.len() <= NAME_BYTES_MAX;
    }
    let scoped = name.strip_prefix('@').filter(|_| ecosystem == Ecosystem::Npm);
    let is_name = match scoped {
        Some(scoped) => scoped.split_once('/').is_some_and(|(scope, own)| is_part(scope) && is_part(own)),
        None => is_part(name),
    };
    is_name && name.len() <= NAME_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_known_differences_are_known_and_others_keep_their_name() {
        for (module, package) in [
            ("cv2", "opencv-python-headless"),
            ("sklearn", "scikit-learn"),
            ("PIL", "pillow"),
            ("google.protobuf", "protobuf"),
            ("yaml", "pyyaml"),
            ("pandas", "pandas"),
            ("my_module", "my-module"),
        ] {
            assert_eq!(package_of(Ecosystem::Pypi, module).as_deref(), Some(package), "{module}");
        }
        for (module, package) in [("lodash/fp", "lodash"), ("@a/b/c", "@a/b"), ("zod", "zod")] {
            assert_eq!(package_of(Ecosystem::Npm, module).as_deref(), Some(package), "{module}");
        }
        assert_eq!(package_of(Ecosystem::Pypi, "pandas.cor"), None, "the package is there");
        let module = "golang.org/x/text/cases";
        assert_eq!(package_of(Ecosystem::Go, module).as_deref(), Some(module));
        for module in ["encoding/json", "uuid", "github.com", "github.com/../x", "github.com//x"] {
            assert_eq!(package_of(Ecosystem::Go, module), None, "{module}");
        }
        for module in ["", "a b", "'; rm", "\u{7}", "é", "../x", "@x", &"x".repeat(200)] {
            assert_eq!(package_of(Ecosystem::Pypi, module), None, "{module}");
            assert_eq!(package_of(Ecosystem::Npm, module), None, "{module}");
            assert_eq!(package_of(Ecosystem::Go, module), None, "{module}");
        }
    }

    #[test]
    fn the_table_is_in_order() {
        assert!(OTHER_NAMES.is_sorted_by_key(|(module, _)| *module));
    }
}
