//! What results of tools looked like, collected until it is news for the disk.
//!
//! What a server answers decides what is news, so the number of results that are learned from is bounded for each tool,
//! and a server has one task that writes its catalogue: news that comes meanwhile waits for the next turn.

use std::collections::HashMap;
use std::sync::Arc;

use crate::catalogue::Catalogue;
use crate::server::{Server, locked};
use crate::shape::Shape;

/// How many results of a tool are learned from. It is never counted anew while the server is known to this process.
const LEARNED_MAX: u64 = 20;

/// What a server's results taught.
#[derive(Default)]
pub(crate) struct Lessons {
    by_tool: HashMap<String, Learned>,
    /// Whether a task writes news.
    is_saving: bool,
}

/// What results of one tool looked like.
struct Learned {
    digest: String,
    shape: Shape,
    /// The results that were learned from.
    times: u64,
    /// Those of them that the disk does not know.
    unsaved: u64,
    is_news: bool,
}

impl Lessons {
    /// Takes what a result looked like. Returns whether a task must be started that writes it.
    fn take(&mut self, tool: &str, digest: &str, shape: Shape) -> bool {
        let first = || Learned {
            digest: digest.to_owned(),
            shape: shape.clone(),
            times: 0,
            unsaved: 0,
            is_news: true,
        };
        let entry = self.by_tool.entry(tool.to_owned()).or_insert_with(first);
        if entry.times >= LEARNED_MAX {
            return false;
        }
        let merged = match entry.digest == digest {
            true => entry.shape.clone().merge(shape),
            false => shape,
        };
        entry.is_news |= entry.shape != merged || entry.digest != digest;
        entry.digest = digest.to_owned();
        entry.shape = merged;
        (entry.times, entry.unsaved) = (entry.times + 1, entry.unsaved + 1);
        entry.is_news && !std::mem::replace(&mut self.is_saving, true)
    }

    /// The news. Without any, the task that asks ends.
    fn news(&mut self) -> Vec<(String, String, Shape, u64)> {
        let news: Vec<_> = self.by_tool.iter_mut().filter(|(_, entry)| entry.is_news).collect();
        self.is_saving = !news.is_empty();
        let saved = news.into_iter().map(|(tool, entry)| {
            entry.is_news = false;
            let seen = std::mem::take(&mut entry.unsaved);
            (tool.clone(), entry.digest.clone(), entry.shape.clone(), seen)
        });
        saved.collect()
    }
}

impl Server {
    /// Remembers what a result looked like.
    pub(crate) fn learn(self: &Arc<Self>, tool: &str, digest: &str, shape: Shape) {
        if locked(&self.lessons).take(tool, digest, shape) {
            tokio::spawn(save(Arc::clone(self)));
        }
    }

    /// Whether further results of a tool are learned from.
    pub(crate) fn is_learning(&self, tool: &str) -> bool {
        locked(&self.lessons).by_tool.get(tool).is_none_or(|entry| entry.times < LEARNED_MAX)
    }
}

async fn save(server: Arc<Server>) {
    loop {
        let news = locked(&server.lessons).news();
        if news.is_empty() {
            return;
        }
        let learn = move |catalogue: &mut Catalogue| {
            for (tool, digest, shape, seen) in &news {
                catalogue.learn(tool, digest, shape, *seen);
            }
        };
        if let Err(error) = server.update(learn).await {
            tracing::warn!(reason = error.message, "shape_not_kept");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tool_is_learned_from_a_bounded_number_of_times_and_written_by_one_task() {
        let mut lessons = Lessons::default();
        let mut writes = 0;
        for number in 0..1000 {
            // Each result is news: another field, or another definition.
            let field = "f".repeat(1 + number % 30);
            let digest = format!("{}", number / 500);
            let starts = lessons.take("t", &digest, Shape::of(&json!({ field: number })));
            assert_eq!(starts, number == 0, "another task writes already");
            if !lessons.news().is_empty() {
                writes += 1;
                lessons.is_saving = true;
            }
        }
        assert_eq!(writes, LEARNED_MAX);
        assert!(lessons.take("u", "0", Shape::Int) && !lessons.take("u", "0", Shape::Text));
        assert_eq!(lessons.news().len(), 1);
        assert!(lessons.news().is_empty() && !lessons.is_saving, "the task ends");
        assert!(lessons.take("u", "0", Shape::Null), "the next news starts another one");
    }
}
