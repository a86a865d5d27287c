//! The relay keeps the contract, and the conformance suite notices a wall that breaks it.

use std::sync::Arc;

use libtest_mimic::Trial;
use relay::{Broken, WireGuest};
use sandbox::Backend;
use sandbox::conformance::{Area, Subject, check, check_area};

use crate::{relayed, test};

pub(crate) fn tests() -> Vec<Trial> {
    vec![
        test("conformance::the_relay_keeps_the_contract", the_relay_keeps_the_contract),
        test("conformance::a_relay_with_spares_keeps_the_contract", a_relay_with_spares_keeps_the_contract),
        test("conformance::every_broken_area_is_noticed", every_broken_area_is_noticed),
    ]
}

async fn the_relay_keeps_the_contract() {
    let (backend, _process) = relayed();
    let areas = check(Subject { backend: &backend, guest: Some(&WireGuest) }).await.unwrap();
    let left_out: Vec<Area> = Area::ALL.into_iter().filter(|area| !areas.contains(area)).collect();
    assert_eq!(left_out, [Area::Lease], "the core is enough for a wall without spares");
}

async fn a_relay_with_spares_keeps_the_contract() {
    let (backend, _process) = relayed();
    let backend = backend.warmable();
    let areas = check(Subject { backend: &backend, guest: Some(&WireGuest) }).await.unwrap();
    assert_eq!(areas, Area::ALL);
}

async fn every_broken_area_is_noticed() {
    let (backend, _process) = relayed();
    let backend: Arc<dyn Backend> = Arc::new(backend.warmable());
    for area in Area::ALL {
        let broken = Broken::new(Arc::clone(&backend), area);
        let subject = Subject { backend: &broken, guest: Some(&WireGuest) };
        let told = check_area(subject, area).await.expect_err(&format!("{area:?} is broken"));
        assert!(told.starts_with(&format!("{area:?}: ")), "{told}");
    }
}
