//! Tests that the pages of a large fleet stay small and fast.

use std::time::{Duration, Instant};

use super::views::text_of;
use crate::world::World;

const GROUPS: usize = 1_000;
const MACHINES: usize = 10;
/// The max size of a page in bytes, which a browser on a phone loads at once.
const LARGEST: usize = 200_000;
/// Far more than a page takes, even in an unoptimized build on a busy machine. `benches/debug_state.rs` measures it.
const LONGEST: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_of_a_thousand_groups_are_small_and_soon_there() {
    let world = World::of_fleet(GROUPS, MACHINES).await;
    for (path, shown) in [
        ("/?sort=id", "1000 rows, page 1 of 10"),
        ("/?sort=id&page=10", "MachineDeployment/team-a/group-0999"),
        ("/?q=group-0777", "1 row "),
        ("/groups/MachineDeployment/team-a/group-0500", "10 instances"),
    ] {
        let began = Instant::now();
        let page = world.page(path).await;
        let took = began.elapsed();
        println!("{path}: {} bytes in {took:.1?}", page.len());
        assert!(text_of(&page).contains(shown), "{path}: {}", text_of(&page));
        assert!(page.len() < LARGEST && took < LONGEST, "{path}: {} bytes in {took:?}", page.len());
    }
    world.stop().await;
}
