//! The nearest known names of a package that does not exist. Nothing is asked of a mirror: a guess would be a request
//! for a name that someone may have registered to be guessed.

use engine::packages::Ecosystem;

/// Popular packages of each ecosystem, one in a line.
const PYPI: &str = include_str!("popular/pypi.txt");
const NPM: &str = include_str!("popular/npm.txt");
const GO: &str = include_str!("popular/go.txt");
/// Modules that come with the interpreters, one in a line.
const STANDARD_PYTHON: &str = include_str!("popular/standard-python.txt");
const STANDARD_NODE: &str = include_str!("popular/standard-node.txt");
/// The most names that are suggested.
const SUGGESTED_MAX: usize = 3;
/// The longest name that is compared; the comparison is quadratic.
const COMPARED_BYTES_MAX: usize = 64;

/// The modules that are not named like their packages.
const BY_MODULE: [(&str, &str); 16] = [
    ("cv2", "opencv-python-headless"),
    ("pil", "pillow"),
    ("sklearn", "scikit-learn"),
    ("skimage", "scikit-image"),
    ("yaml", "pyyaml"),
    ("bs4", "beautifulsoup4"),
    ("dateutil", "python-dateutil"),
    ("dotenv", "python-dotenv"),
    ("docx", "python-docx"),
    ("pptx", "python-pptx"),
    ("fitz", "pymupdf"),
    ("crypto", "pycryptodome"),
    ("serial", "pyserial"),
    ("git", "gitpython"),
    ("jwt", "pyjwt"),
    ("openssl", "pyopenssl"),
];

/// Whether it is a module that needs no package.
pub(crate) fn is_standard(ecosystem: Ecosystem, name: &str) -> bool {
    let modules = match ecosystem {
        Ecosystem::Pypi => STANDARD_PYTHON,
        Ecosystem::Npm => STANDARD_NODE,
        // Paths of the standard library are refused by their form.
        Ecosystem::Go => return false,
    };
    // The normal form of a Python package has `-` for `_`.
    modules.lines().any(|module| module.eq_ignore_ascii_case(&name.replace('-', "_")))
}

/// The package that has a module of that name.
pub(crate) fn by_module(ecosystem: Ecosystem, name: &str) -> Option<&'static str> {
    let found = BY_MODULE.iter().find(|(module, _)| *module == name);
    found.filter(|_| ecosystem == Ecosystem::Pypi).map(|(_, package)| *package)
}

/// Known names that are close to one that does not exist, the closest first.
pub(crate) fn names(ecosystem: Ecosystem, wrong: &str, known: &[String]) -> Vec<String> {
    let popular = match ecosystem {
        Ecosystem::Pypi => PYPI,
        Ecosystem::Npm => NPM,
        Ecosystem::Go => GO,
    };
    let mut found: Vec<(usize, &str)> = Vec::new();
    found.extend(by_module(ecosystem, wrong).map(|package| (0, package)));
    let most = (wrong.len() / 3).clamp(1, 3);
    for name in popular.lines().chain(known.iter().map(String::as_str)) {
        if name.is_empty() || name == wrong || name.len().max(wrong.len()) > COMPARED_BYTES_MAX {
            continue;
        }
        let far = distance(name.as_bytes(), wrong.as_bytes());
        let is_part = wrong.len() >= 4 && (name.contains(wrong) || name.len() >= 4 && wrong.contains(name));
        if far <= most || is_part {
            found.push((far, name));
        }
    }
    found.sort();
    let mut names: Vec<String> = Vec::new();
    for (_, name) in found {
        if names.len() < SUGGESTED_MAX && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// How many characters must be inserted, removed, replaced or swapped with their neighbour.
fn distance(one: &[u8], other: &[u8]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, byte) in one.iter().enumerate() {
        let mut next = vec![at + 1];
        for (to, against) in other.iter().enumerate() {
            let mut least = (row[to] + usize::from(byte != against)).min(row[to + 1] + 1).min(next[to] + 1);
            if at > 0 && to > 0 && *byte == other[to - 1] && one[at - 1] == *against {
                least = least.min(before[to - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_and_well_known_names_are_suggested() {
        assert_eq!(names(Ecosystem::Pypi, "pandsa", &[]).first().map(String::as_str), Some("pandas"));
        assert_eq!(
            names(Ecosystem::Pypi, "cv2", &[]).first().map(String::as_str),
            Some("opencv-python-headless")
        );
        assert_eq!(names(Ecosystem::Npm, "lodahs", &[]).first().map(String::as_str), Some("lodash"));
        assert!(is_standard(Ecosystem::Pypi, "json") && is_standard(Ecosystem::Npm, "fs"));
        assert!(is_standard(Ecosystem::Pypi, "concurrent") && !is_standard(Ecosystem::Pypi, "fs"));
        assert_eq!(names(Ecosystem::Npm, "zzqqvv", &[]), Vec::<String>::new());
        assert_eq!(names(Ecosystem::Pypi, "inhous", &["inhouse".to_owned()]), ["inhouse"]);
    }
}
