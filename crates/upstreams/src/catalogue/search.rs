//! Finds tools by words: BM25 over name, server, parameters and description, with weights.
//!
//! One index covers all servers. Words are split where letters change case and where digits begin, folded, and stripped of
//! simple endings, so that `listIssues` is found by "list issue". A word of a query also finds longer words that begin
//! with it, for less.

use std::collections::HashMap;

use super::Catalogue;

/// What a word counts in each place.
const NAME_WEIGHT: f32 = 4.0;
const SERVER_WEIGHT: f32 = 2.0;
const PARAMETER_WEIGHT: f32 = 1.5;
const ABOUT_WEIGHT: f32 = 1.0;
/// BM25's parameters.
const K1: f32 = 1.2;
const B: f32 = 0.6;
/// What a longer word counts that begins with the word of the query.
const PREFIX_WEIGHT: f32 = 0.4;
const PREFIX_CHARACTERS_LEAST: usize = 3;
const EXPANSIONS_MAX: usize = 24;
/// The most words of a query.
const QUERY_WORDS_MAX: usize = 16;
const WORD_BYTES_MAX: usize = 40;

/// Words that say nothing in a description or a question.
const EMPTY_WORDS: [&str; 24] = [
    "a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "in", "is", "it", "of", "on", "or",
    "that", "the", "this", "to", "with", "you", "your", "i",
];

/// The documents that have a word, with its weighted count in each.
type Postings = Vec<(u32, f32)>;

/// Where a tool is: the place of its server, and its own in the catalogue.
pub(crate) type Place = (u32, u32);

/// An index of all tools.
#[derive(Default)]
pub(crate) struct Index {
    /// All words, sorted, with the range of their postings.
    words: Vec<(Box<str>, u32, u32)>,
    /// The document and the weighted count.
    postings: Postings,
    documents: Vec<Document>,
    length_average: f32,
}

struct Document {
    place: Place,
    length: f32,
}

impl Index {
    /// Indexes all tools of these servers.
    pub(crate) fn new<'a>(servers: impl Iterator<Item = (u32, &'a str, &'a Catalogue)>) -> Self {
        let mut by_word: HashMap<Box<str>, Postings> = HashMap::new();
        let mut documents: Vec<Document> = Vec::new();
        let mut counts: HashMap<String, f32> = HashMap::new();
        for (server, server_name, catalogue) in servers {
            for (place, tool) in catalogue.tools.iter().enumerate() {
                let facts = &tool.facts;
                let mut length = 0.0;
                let mut add = |text: &str, weight: f32| {
                    each_word(text, |word| {
                        length += weight;
                        match counts.get_mut(word) {
                            Some(count) => *count += weight,
                            None => drop(counts.insert(word.to_owned(), weight)),
                        }
                    });
                };
                add(&facts.name, NAME_WEIGHT);
                add(server_name, SERVER_WEIGHT);
                add(&facts.title, NAME_WEIGHT / 2.0);
                facts.parameters.iter().for_each(|name| add(name, PARAMETER_WEIGHT));
                add(&facts.about, ABOUT_WEIGHT);
                let document = documents.len() as u32;
                documents.push(Document { place: (server, place as u32), length });
                for (word, count) in counts.drain() {
                    by_word.entry(word.into_boxed_str()).or_default().push((document, count));
                }
            }
        }
        Self::packed(by_word, documents)
    }

    fn packed(by_word: HashMap<Box<str>, Postings>, documents: Vec<Document>) -> Self {
        let mut sorted: Vec<(Box<str>, Postings)> = by_word.into_iter().collect();
        sorted.sort_by(|one, other| one.0.cmp(&other.0));
        let mut postings = Vec::with_capacity(sorted.iter().map(|(_, list)| list.len()).sum());
        let mut words = Vec::with_capacity(sorted.len());
        for (word, list) in sorted {
            let start = postings.len() as u32;
            postings.extend(list);
            words.push((word, start, postings.len() as u32));
        }
        let total: f32 = documents.iter().map(|document| document.length).sum();
        let length_average = total / documents.len().max(1) as f32;
        Self { words, postings, documents, length_average }
    }

    /// The tools that match, best first, and the score of each. Ties are in the order of names.
    pub(crate) fn find(&self, query: &str, is_wanted: impl Fn(Place) -> bool) -> Vec<Place> {
        let mut scores: HashMap<u32, f32> = HashMap::new();
        let mut words: Vec<String> = Vec::new();
        each_word(query, |word| words.push(word.to_owned()));
        words.dedup();
        for word in words.iter().take(QUERY_WORDS_MAX) {
            self.score(word, &mut scores);
        }
        let mut found: Vec<(u32, f32)> = scores
            .into_iter()
            .filter(|(document, _)| is_wanted(self.documents[*document as usize].place))
            .collect();
        found.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
        found.into_iter().map(|(document, _)| self.documents[document as usize].place).collect()
    }

    fn score(&self, word: &str, scores: &mut HashMap<u32, f32>) {
        let start = self.words.partition_point(|(known, ..)| known.as_ref() < word);
        let matches = self.words[start..].iter().take_while(|(known, ..)| known.starts_with(word));
        // A document counts a word of the query once: by the best word that matches.
        let mut best: HashMap<u32, f32> = HashMap::new();
        for (known, from, to) in matches.take(EXPANSIONS_MAX) {
            let weight = match known.as_ref() == word {
                true => 1.0,
                false if word.chars().count() >= PREFIX_CHARACTERS_LEAST => PREFIX_WEIGHT,
                false => continue,
            };
            let list = &self.postings[*from as usize..*to as usize];
            let (total, having) = (self.documents.len() as f32, list.len() as f32);
            let rarity = ((total - having + 0.5) / (having + 0.5) + 1.0).ln();
            for (document, count) in list {
                let length = self.documents[*document as usize].length / self.length_average.max(1.0);
                let score = weight * rarity * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length));
                let entry = best.entry(*document).or_default();
                *entry = entry.max(score);
            }
        }
        for (document, score) in best {
            *scores.entry(document).or_default() += score;
        }
    }
}

/// The words of a text, folded, in order.
fn each_word(text: &str, mut each: impl FnMut(&str)) {
    let mut word = String::new();
    let mut last = ' ';
    let mut give = |word: &mut String| {
        if !word.is_empty() {
            let stem = stem(word);
            if !EMPTY_WORDS.contains(&stem) {
                each(stem);
            }
            word.clear();
        }
    };
    for character in text.chars() {
        let is_border = last.is_lowercase() && character.is_uppercase()
            || last.is_alphabetic() && character.is_ascii_digit()
            || last.is_ascii_digit() && character.is_alphabetic();
        if is_border || !character.is_alphanumeric() {
            give(&mut word);
        }
        if character.is_alphanumeric() && word.len() < WORD_BYTES_MAX {
            word.extend(character.to_lowercase());
        }
        last = character;
    }
    give(&mut word);
}

/// A word without simple English endings. Wrong stems do no harm, because both sides have them.
fn stem(word: &str) -> &str {
    let long_enough = |stem: &&str| stem.len() >= 3;
    if !word.is_ascii() {
        return word;
    }
    if let Some(stem) = word.strip_suffix("ing").filter(|stem| stem.len() >= 4) {
        return stem;
    }
    if word.ends_with("ss") || word.ends_with("us") || word.ends_with("is") {
        return word;
    }
    for ending in ["es", "ed", "s", "e"] {
        if let Some(stem) = word.strip_suffix(ending).filter(long_enough) {
            return stem;
        }
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_folded_and_split() {
        let mut words = Vec::new();
        each_word("listIssues of the HTTP2 repositories, creating files", |word| words.push(word.to_owned()));
        assert_eq!(words, ["list", "issu", "http", "2", "repositori", "creat", "fil"]);
    }
}
