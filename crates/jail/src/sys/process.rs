//! Signals and environment of the spawner and the zygote processes.

use std::io;

const FIRST_SIGNAL: libc::c_int = 1;
const LAST_SIGNAL: libc::c_int = 64;

/// Gives every signal its default disposition and unblocks all of them.
pub(crate) fn reset_signals() {
    for signal in FIRST_SIGNAL..=LAST_SIGNAL {
        // SAFETY: sets a disposition only; signals that cannot be set return an error, which is harmless.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: an all-zero signal set is a valid value, which sigemptyset initialises properly.
    let mut none: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is valid and ours.
    unsafe { libc::sigemptyset(&raw mut none) };
    // SAFETY: the set is valid; the old mask is not asked for.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()) };
}

/// Signal dispositions that differ from the default, to be restored later.
pub(crate) struct Dispositions {
    actions: Vec<(libc::c_int, libc::sigaction)>,
}

impl Dispositions {
    pub(crate) fn save() -> Self {
        let mut actions = Vec::new();
        for signal in FIRST_SIGNAL..=LAST_SIGNAL {
            // SAFETY: an all-zero action is a valid value.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: queries only; the block is valid for writing.
            let is_known = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) } == 0;
            if is_known && action.sa_sigaction != libc::SIG_DFL {
                actions.push((signal, action));
            }
        }
        Self { actions }
    }

    /// Restores them. All other signals must have their default disposition.
    pub(crate) fn restore(&self) {
        for (signal, action) in &self.actions {
            // SAFETY: restores a disposition set by the program that this process is a copy of. Signals that
            // cannot be set stay.
            unsafe { libc::sigaction(*signal, action, std::ptr::null_mut()) };
        }
    }
}

/// Lets the kernel reap this process's children at once. See the notes on SIGCHLD in wait(2).
pub(crate) fn ignore_child_signal() {
    // SAFETY: sets a disposition only.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// Restores the default disposition of SIGCHLD.
pub(crate) fn heed_child_signal() {
    // SAFETY: sets a disposition only.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Runs work that must wait for its own child process.
pub(crate) fn with_child_signal_default<T>(work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    heed_child_signal();
    let result = work();
    ignore_child_signal();
    result
}

unsafe extern "C" {
    static mut environ: *mut *mut libc::c_char;
}

/// Overwrites arguments and environment with zeros. No sandbox then inherits a page with a secret in it, and
/// /proc/1/cmdline inside does not show how the server was started.
pub(crate) fn scrub_start() {
    // SAFETY: single-threaded here, so nothing else reads or changes the pointer.
    let environment = unsafe { environ };
    if environment.is_null() {
        return;
    }
    scrub_strings(environment);
    let count = std::env::args_os().count();
    // SAFETY: nothing here ever set a variable, so the array is still where the kernel put it: after the
    // arguments and the null pointer that ends them (see execve(2), and the ELF process start-up layout).
    let arguments = unsafe { environment.sub(count + 1) };
    // SAFETY: within the arguments' array, which the layout puts right before the environment.
    let end = unsafe { arguments.add(count) };
    // SAFETY: the last pointer of that array, which is null if the layout is as described.
    if unsafe { *end }.is_null() {
        scrub_strings(arguments);
    }
    // SAFETY: single-threaded here; a null environment is a valid empty one.
    unsafe { environ = std::ptr::null_mut() };
}

/// Overwrites every string of an array that ends with a null pointer.
fn scrub_strings(mut entry: *mut *mut libc::c_char) {
    loop {
        // SAFETY: the array ends with a null pointer, which stops this loop.
        let text = unsafe { *entry };
        if text.is_null() {
            break;
        }
        // SAFETY: each entry is a C string.
        let length = unsafe { libc::strlen(text) };
        // SAFETY: the string is writable memory of this process, `length` bytes long.
        unsafe { std::ptr::write_bytes(text, 0, length) };
        // SAFETY: still within the array, as its end has not been seen.
        entry = unsafe { entry.add(1) };
    }
}

/// Ends this process at once, without running exit handlers.
pub(crate) fn exit_now(status: i32) -> ! {
    // SAFETY: _exit never returns and touches no memory of ours.
    unsafe { libc::_exit(status) }
}
