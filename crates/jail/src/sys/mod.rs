//! Kernel calls that no safe crate offers. One operation per unsafe block, each with its reason.
//!
//! Everything above this module is safe code. This module makes no decisions.

#![allow(unsafe_code, reason = "the fence: kernel calls that no safe crate offers live here")]

mod clone;
mod descriptors;
mod large_pages;
mod memory;
mod mount;
mod network;
mod process;

pub(crate) use clone::{
    ChildFlags, Cloned, Namespace, clone_into_walls, fork_process, owner_of, unshare_cgroup_namespace,
    unshare_mount_namespace, unshare_network_namespace, unshare_user_namespace, wait_for_children,
};
pub(crate) use descriptors::{close_from, place};
pub(crate) use large_pages::enlarge_program;
pub(crate) use memory::{Arguments, InterpreterMemory, fill_heap};
pub(crate) use mount::{MountAttributes, set_mount_attributes, set_mount_id_map, set_root_readonly};
pub(crate) use network::{is_network_unused, raise_loopback};
pub(crate) use process::{
    Dispositions, exit_now, heed_child_signal, ignore_child_signal, reset_signals, scrub_start,
    with_child_signal_default,
};
