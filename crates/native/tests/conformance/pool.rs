//! Warm sandboxes: the same laws, and what is true of pools alone.

use std::{sync::Arc, time::Duration};

use osb_core::{ImageName, PoolStatus, Runtime, testkit::conformance::Harness};
use osb_native::{Native, PoolConfig};

use crate::Host;

const SIZE: usize = 3;

async fn host() -> Option<Host> {
    let pools = vec![PoolConfig { image: ImageName::new("host"), size: SIZE }];
    let host = Host::new(pools).await?;
    is_full(&host.native()).await;
    Some(host)
}

async fn is_full(native: &Native) {
    comes_to(native, |pool| pool.ready == pool.target).await;
}

async fn comes_to(native: &Native, wanted: impl Fn(&PoolStatus) -> bool) {
    for _ in 0..4000 {
        if native.pools().iter().all(&wanted) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the pool stays at {:?}", native.pools());
}

/// How many entries a part of the data directory has.
fn entries(host: &Host, part: &str) -> usize {
    osb_sys::fs::names(host.directory.path().join(part)).unwrap().len()
}

osb_core::conformance!(host);

#[tokio::test]
async fn a_claimed_sandbox_is_taken_from_the_pool_and_replaced() {
    let Some(host) = host().await else { return };
    let native = host.native();
    assert!(native.list().await.unwrap().is_empty(), "nobody sees those that wait");
    let spec = host.spec();
    native.ensure(&spec).await.unwrap();
    let pools = native.pools();
    assert_eq!((pools[0].claims, pools[0].misses), (1, 0), "{pools:?}");
    is_full(&native).await;
    assert_eq!(entries(&host, "pool"), SIZE, "never more than its size");
    assert_eq!(native.list().await.unwrap().len(), 1);
    native.remove(spec.id).await.unwrap();
}

#[tokio::test]
async fn what_the_pool_cannot_give_is_made_anew() {
    let Some(host) = host().await else { return };
    let native = host.native();
    let specs: Vec<_> = (0..=SIZE).map(|_| host.spec()).collect();
    for spec in &specs {
        native.ensure(spec).await.unwrap();
    }
    let pools = native.pools();
    assert_eq!(pools[0].claims + pools[0].misses, SIZE as u64 + 1, "{pools:?}");
    assert_eq!(native.list().await.unwrap().len(), SIZE + 1);
    for spec in &specs {
        native.remove(spec.id).await.unwrap();
    }
}

#[tokio::test]
async fn those_that_wait_end_with_their_server_and_the_next_one_clears_them() {
    let Some(host) = host().await else { return };
    let claimed = host.spec();
    host.native().ensure(&claimed).await.unwrap();
    is_full(&host.native()).await;
    let next: Arc<dyn Runtime> = host.reopen().await;
    let listed: Vec<_> = next.list().await.unwrap().into_iter().map(|seen| seen.id).collect();
    assert_eq!(listed, [claimed.id], "the claimed one lives, and nothing else");
    is_full(&host.native()).await;
    assert_eq!(entries(&host, "pool"), SIZE, "nothing is left of the first server's");
    next.remove(claimed.id).await.unwrap();
}

#[tokio::test]
async fn a_warm_sandbox_that_ends_is_replaced() {
    let Some(host) = host().await else { return };
    let native = host.native();
    let name = osb_sys::fs::names(host.directory.path().join("pool")).unwrap().remove(0);
    let group = host.group_of(&name);
    let mut processes = group.processes();
    // Where the server is not root, the first one has written down which one it is.
    let alive = host.directory.path().join("pool").join(&name).join("alive");
    if let Ok(text) = osb_sys::fs::read_to_string(alive) {
        processes.push(text.trim().parse::<osb_sys::process::Trace>().unwrap().pid());
    }
    assert!(!processes.is_empty());
    // Opened before any is killed: with the first one, the others end.
    let opened: Vec<_> =
        processes.into_iter().filter_map(|pid| osb_sys::process::open(pid).ok()).collect();
    for process in opened {
        osb_sys::process::kill(process).unwrap();
    }
    comes_to(&native, |pool| pool.failures == 1 && pool.ready == pool.target).await;
    assert!(group.processes().is_empty());
    let spec = host.spec();
    native.ensure(&spec).await.unwrap();
    native.remove(spec.id).await.unwrap();
}
