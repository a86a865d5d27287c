//! Which modules of a layer programs import, so that spares can load them ahead (decision 35).
//!
//! A layer has one list, to which programs add. All programs that import one of its modules share one kind of spare,
//! instead of one kind for each combination.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, PoisonError};

/// The most layers that are remembered. The one that was asked for the longest time ago makes room.
const LAYERS_MAX: usize = 32;
/// The most modules of one layer that are loaded ahead. Each one costs every spare some time and memory.
const MODULES_MAX: usize = 12;
/// The beginnings of import lines.
const IMPORTS: [&str; 2] = ["import ", "from "];

/// The modules of each layer, the layer of the last request first.
#[derive(Default)]
pub(crate) struct PopularModules {
    layers: Mutex<VecDeque<(String, BTreeSet<String>)>>,
}

impl PopularModules {
    /// Adds the modules of a layer that this program imports. Returns all of that layer.
    pub(crate) fn note<'a>(
        &self,
        digest: &str,
        modules: impl Iterator<Item = &'a str>,
        code: &str,
    ) -> Vec<String> {
        let words: BTreeSet<&str> = imported_words(code).collect();
        let mut layers = self.layers.lock().unwrap_or_else(PoisonError::into_inner);
        let known =
            layers.iter().position(|(known, _)| known == digest).and_then(|place| layers.remove(place));
        let (digest, mut popular) = known.unwrap_or_else(|| (digest.to_owned(), BTreeSet::new()));
        for module in modules.filter(|module| words.contains(module)) {
            if popular.len() < MODULES_MAX {
                popular.insert(module.to_owned());
            }
        }
        let all = popular.iter().cloned().collect();
        layers.push_front((digest, popular));
        layers.truncate(LAYERS_MAX);
        all
    }
}

/// The words of the lines that import something. This is a guess; a wrong guess costs only time.
pub(crate) fn imported_words(code: &str) -> impl Iterator<Item = &str> {
    let lines = code.lines().map(str::trim_start);
    let imports = lines.filter(|line| IMPORTS.iter().any(|word| line.starts_with(word)));
    imports.flat_map(|line| line.split(|letter: char| !letter.is_alphanumeric() && letter != '_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_one_layer_share_the_list_of_its_modules() {
        let popular = PopularModules::default();
        let note =
            |digest: &str, code: &str| popular.note(digest, ["numpy", "pandas", "scipy"].into_iter(), code);
        assert!(note("a", "print(1)").is_empty());
        assert_eq!(note("a", "import pandas as pd\nimport os"), ["pandas"]);
        assert_eq!(note("a", "from numpy.linalg import norm"), ["numpy", "pandas"]);
        assert_eq!(note("a", "print('import scipy')"), ["numpy", "pandas"]);
        assert!(note("b", "numpy = 1").is_empty(), "another layer has its own list");
    }

    #[test]
    fn the_lists_are_bounded() {
        let popular = PopularModules::default();
        let names: Vec<String> = (0..MODULES_MAX + 5).map(|number| format!("m{number}")).collect();
        let code: String = names.iter().map(|name| format!("import {name}\n")).collect();
        assert_eq!(popular.note("a", names.iter().map(String::as_str), &code).len(), MODULES_MAX);
        for number in 0..LAYERS_MAX {
            popular.note(&number.to_string(), ["x"].into_iter(), "import x");
        }
        assert!(popular.note("a", ["x"].into_iter(), "").is_empty(), "the oldest was forgotten");
    }
}
