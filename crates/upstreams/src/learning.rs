//! What results of tools looked like, collected until it is news for the disk.

use std::sync::Arc;

use crate::server::{Server, locked};
use crate::shape::Shape;

/// A shape that is not on the disk yet.
pub(crate) struct Learned {
    pub(crate) digest: String,
    pub(crate) shape: Shape,
    pub(crate) seen: u64,
}

impl Server {
    /// Remembers what a result looked like.
    pub(crate) fn learn(self: &Arc<Self>, tool: &str, digest: &str, shape: Shape) {
        let news = {
            let mut learned = locked(&self.learned);
            let entry = learned.entry(tool.to_owned()).or_insert_with(|| Learned {
                digest: digest.to_owned(),
                shape: shape.clone(),
                seen: 0,
            });
            let merged = entry.shape.clone().merge(shape);
            let is_news = entry.seen == 0 || entry.shape != merged || entry.digest != digest;
            entry.digest = digest.to_owned();
            entry.shape = merged;
            entry.seen += 1;
            is_news.then(|| (entry.shape.clone(), std::mem::take(&mut entry.seen)))
        };
        if let Some((shape, seen)) = news {
            // Counted again from one, so that the next result is no news.
            if let Some(entry) = locked(&self.learned).get_mut(tool) {
                entry.seen = entry.seen.max(1);
            }
            let (server, tool, digest) = (Arc::clone(self), tool.to_owned(), digest.to_owned());
            tokio::spawn(async move {
                let kept =
                    server.update(move |catalogue| catalogue.learn(&tool, &digest, &shape, seen)).await;
                if let Err(error) = kept {
                    tracing::warn!(reason = error.message, "shape_not_kept");
                }
            });
        }
    }

    /// How often results of a tool were learned from since the server was first used.
    pub(crate) fn times_learned(&self, tool: &str) -> u64 {
        locked(&self.learned).get(tool).map_or(0, |entry| entry.seen)
    }
}
