//! The languages of the host: interpreters on its PATH.

use ::sandbox::{BoxFuture, Inventory, InventoryError, Toolchain, ToolchainQuery};

use super::HostParts;

/// Finds interpreters on the host.
#[derive(Debug)]
pub struct HostInventory {}

impl HostInventory {
    /// An inventory of this host.
    pub fn new(_: &HostParts) -> Self {
        Self {}
    }
}

impl Inventory for HostInventory {
    fn find<'a>(&'a self, question: &'a ToolchainQuery) -> BoxFuture<'a, Result<Toolchain, InventoryError>> {
        let commands = question.commands.join(", ");
        Box::pin(std::future::ready(Err(InventoryError::Missing { commands })))
    }

    fn identity<'a>(&'a self, toolchain: &'a Toolchain) -> BoxFuture<'a, Result<String, InventoryError>> {
        Box::pin(std::future::ready(Ok(toolchain.executable.clone())))
    }
}
