//! The languages of the relay's machine.

use std::sync::Arc;

use ::sandbox::{BoxFuture, Inventory, InventoryError, Toolchain, ToolchainQuery};

use super::connection::Connection;
use crate::link::Lost;
use crate::protocol::{Call, Json, NoLanguage};

/// Asks the relay for its languages.
pub(super) struct RelayInventory {
    connection: Arc<Connection>,
}

impl RelayInventory {
    pub(super) fn new(connection: &Arc<Connection>) -> Self {
        Self { connection: Arc::clone(connection) }
    }
}

impl Inventory for RelayInventory {
    fn find<'a>(&'a self, question: &'a ToolchainQuery) -> BoxFuture<'a, Result<Toolchain, InventoryError>> {
        Box::pin(async {
            let call = Call::Find(question.clone());
            let found: Result<Json, NoLanguage> = self.connection.call(&call).await?;
            found?.read().map_err(|_| Lost.into())
        })
    }

    fn identity<'a>(&'a self, toolchain: &'a Toolchain) -> BoxFuture<'a, Result<String, InventoryError>> {
        Box::pin(async {
            let call = Call::Identity(Json::of(toolchain));
            let told: Result<String, NoLanguage> = self.connection.call(&call).await?;
            // The toolchain of another machine may have the same paths and times.
            Ok(format!("relay {}", told?))
        })
    }
}

impl From<Lost> for InventoryError {
    fn from(_: Lost) -> Self {
        Self::Late { reason: "the connection to the relay is lost".to_owned() }
    }
}
