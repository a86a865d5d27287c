//! What holds between runs, when programs that were left running have the sandbox to themselves.
//!
//! A run has a watch of its own. Without one, limits that only the host can watch (the disk; processor time; memory,
//! where no control group counts it) would hold for nobody: a program that says it is done and goes on would have no
//! clock. And memory that idle sandboxes keep would be promised again to others.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sandbox::Ending;

use super::Sandboxes;
use super::room::Room;

const LOOK_PAUSE: Duration = Duration::from_millis(500);
/// Sandboxes that are awake at once; beyond them the one that was not used for longest is put to sleep.
const AWAKE_MAX: usize = 1024;

/// Looks at a sandbox for as long as it is awake. One such watch per sandbox is enough.
pub(super) fn watch_over(room: &Arc<Room>) {
    if !room.is_watched.swap(true, Ordering::SeqCst) {
        tokio::spawn(watch(Arc::clone(room)));
    }
}

async fn watch(room: Arc<Room>) {
    loop {
        tokio::time::sleep(LOOK_PAUSE).await;
        // A run that is on is watched already.
        let Some(mut slot) = room.turn_now() else { continue };
        let ending = match &mut slot.living {
            Some(living) => living.sandbox.look().await,
            None => Some(Ending::Gone),
        };
        match ending {
            None => {
                let held = slot.living.as_mut().map_or(0, |living| living.sandbox.usage().memory_peak_bytes);
                room.memory_bytes.store(held, Ordering::Relaxed);
            }
            Some(_) => {
                if slot.living.is_some() {
                    drop(slot.sleep("what was left running went beyond a limit between two runs"));
                }
                room.memory_bytes.store(0, Ordering::Relaxed);
                room.note_awake(&slot);
                // The turn is still ours: whoever wakes it next finds that nobody watches.
                room.is_watched.store(false, Ordering::SeqCst);
                return;
            }
        }
    }
}

impl Sandboxes {
    /// Puts those to sleep that were not used for longest, until what the rest keeps leaves room for one more.
    pub(super) fn make_room_awake(&self) {
        let budget = self.engine.admission.memory_bytes_max();
        let mut awake: Vec<Arc<Room>> =
            self.rooms().values().filter(|room| room.is_watched.load(Ordering::SeqCst)).cloned().collect();
        awake.sort_by_key(|room| room.used_ms());
        let held = |room: &Arc<Room>| room.memory_bytes.load(Ordering::Relaxed);
        let mut bytes: u64 = awake.iter().map(held).sum();
        let mut count = awake.len();
        for room in &awake {
            if bytes <= budget && count < AWAKE_MAX {
                return;
            }
            let Some(mut slot) = room.turn_now() else { continue };
            drop(slot.sleep("others needed the room and the interpreter was put to sleep"));
            bytes = bytes.saturating_sub(held(room));
            count -= 1;
            room.memory_bytes.store(0, Ordering::Relaxed);
            room.note_awake(&slot);
            room.let_go(&mut slot);
        }
    }
}
