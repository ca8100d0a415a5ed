//! Tests of a price file on disk, at the start and while it is followed.

use std::{fs, path::Path, time::Duration};

use parking_lot::Mutex;
use prometheus_client::{encoding::text::encode, registry::Registry};
use tempfile::TempDir;
use testkit::Wait;
use tokio::task::JoinHandle;

use super::*;

const FIRST: &str = "instanceTypes: {a: 1}\n";
const SECOND: &str = "instanceTypes: {a: 2}\n";
const BROKEN: &str = "instanceTypes: {a: -2}\n";

fn price(list: &PriceList) -> f64 {
    list.instance_types["a"].per_hour()
}

/// A price file that is being followed.
struct World {
    dir: TempDir,
    applied: Arc<Mutex<Vec<f64>>>,
    registry: Registry,
    following: JoinHandle<()>,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("prices.yaml"), FIRST).unwrap();
        let (file, prices) = PriceFile::open(&dir.path().join("prices.yaml")).unwrap();
        let applied = Arc::new(Mutex::new(vec![price(&prices)]));
        let mut registry = Registry::default();
        let metrics = PriceMetrics::register(&mut registry);
        let reported = Arc::clone(&applied);
        let interval = Duration::from_millis(2);
        let following =
            tokio::spawn(file.follow(interval, metrics, move |prices| reported.lock().push(price(&prices))));
        Self { dir, applied, registry, following }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("prices.yaml")
    }

    /// Replaces the file by a rename, as ConfigMaps and careful editors do.
    fn replace(&self, text: &str) {
        let other = self.dir.path().join("other");
        fs::write(&other, text).unwrap();
        fs::rename(other, self.path()).unwrap();
    }

    fn metrics(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text
    }

    async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        Wait::new(what).showing(&|| self.metrics()).condition(|| condition(self)).await;
    }

    async fn until_counted(&self, metric: &str) {
        self.until(metric, |world| world.metrics().lines().any(|line| line == metric)).await;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.following.abort();
    }
}

#[tokio::test]
async fn a_change_of_the_file_is_taken_over() {
    let world = World::new();
    world.replace(SECOND);
    world.until("the second price", |world| *world.applied.lock() == [1.0, 2.0]).await;
    world.until_counted("price_file_changes_total{result=\"ok\"} 1").await;
    assert!(world.metrics().contains("price_file_stale 0"), "{}", world.metrics());
}

#[tokio::test]
async fn a_bad_change_leaves_the_prices_from_before_and_a_good_one_ends_that() {
    let world = World::new();
    world.replace(BROKEN);
    world.until_counted("price_file_stale 1").await;
    assert!(world.metrics().contains("price_file_changes_total{result=\"error\"} 1"), "{}", world.metrics());
    assert_eq!(*world.applied.lock(), [1.0]);
    world.replace(SECOND);
    world.until_counted("price_file_stale 0").await;
    assert_eq!(*world.applied.lock(), [1.0, 2.0]);
}

#[tokio::test]
async fn a_file_that_is_gone_for_a_while_changes_nothing() {
    let world = World::new();
    fs::remove_file(world.path()).unwrap();
    world.until_counted("price_file_stale 1").await;
    world.replace(FIRST);
    world.until_counted("price_file_stale 0").await;
    assert_eq!(*world.applied.lock(), [1.0]);
}

#[tokio::test]
async fn a_file_that_is_emptied_does_not_take_the_prices_away() {
    let world = World::new();
    fs::write(world.path(), "").unwrap();
    world.until_counted("price_file_stale 1").await;
    assert_eq!(*world.applied.lock(), [1.0]);
}

/// Returns the prices of consecutive reads, with one of these texts in the file at each.
async fn reloads(file: &mut PriceFile, path: &Path, texts: &[&str]) -> Vec<Option<f64>> {
    let mut pending = Pending::default();
    let mut prices = Vec::new();
    for text in texts {
        fs::write(path, text).unwrap();
        prices.push(file.reload(&mut pending).await.unwrap().map(|list| price(&list)));
    }
    prices
}

#[tokio::test]
async fn a_price_list_that_only_one_read_has_found_is_not_applied() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("prices.yaml");
    fs::write(&path, FIRST).unwrap();
    let (mut file, _) = PriceFile::open(&path).unwrap();
    // The second text stands for a half-written file, though it is a valid price list.
    let third = "instanceTypes: {a: 2, b: 3}\n";
    assert_eq!(reloads(&mut file, &path, &[SECOND, third, third, third]).await, [None, None, Some(2.0), None]);
}

#[test]
fn an_unusable_price_file_is_an_error_that_names_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("prices.yaml");
    let error = |path: &Path| PriceFile::open(path).unwrap_err().to_string();
    assert!(error(&path).contains("prices.yaml: it can't be read"), "{}", error(&path));
    assert!(error(dir.path()).ends_with("it is no file"), "{}", error(dir.path()));
    fs::write(&path, BROKEN).unwrap();
    assert!(error(&path).contains("prices.yaml: instanceTypes.a"), "{}", error(&path));
    fs::write(&path, b"\xff").unwrap();
    assert!(error(&path).contains("no UTF-8 text"), "{}", error(&path));
    fs::write(&path, format!("#{}\n{FIRST}", "x".repeat(1 << 20))).unwrap();
    assert!(error(&path).contains("longer than 1048576 bytes"), "{}", error(&path));
}
