//! Tests of the limit of bytes that informers of several kinds share.

use super::{
    super::limit::{Kept, SharedLimit},
    *,
};

/// The bytes of all.
const MOST: usize = 10_000;

/// An informer of a kind of its own, for which the size of a widget is its number of bytes.
struct Kind {
    api: Api,
    informer: Informer<Widget>,
    factory: Factory,
}

impl Kind {
    fn start(limit: &SharedLimit) -> Self {
        let (factory, api) = factory_with(Settings { page_size: 10, ..paged() });
        let factory = factory.with_shared_limit(Some(limit.clone()));
        let informer = weighing(&factory);
        Self { api, informer, factory }
    }

    /// Starts an informer that knows one widget of this size, and watches.
    async fn holding(limit: &SharedLimit, name: &str, size: i64) -> (Self, Watch) {
        let mut kind = Self::start(limit);
        kind.api.list().await.page(10, &[widget(name, 10, size)], None);
        let watch = kind.api.watch_from(10).await.open();
        until("it", || kind.informer.store().len() == 1).await;
        (kind, watch)
    }

    fn bytes(&self) -> usize {
        self.informer.store().amount().bytes
    }

    fn is_beyond(&self) -> bool {
        let of_all = format!("the kept fields of all objects of this test have more than {MOST} bytes");
        reason(&self.informer).contains(&of_all)
    }
}

/// Counts so many bytes of another kind in a limit.
fn kept(limit: &SharedLimit, bytes: usize) -> Kept {
    let mut kept = Kept::new(usize::MAX, Some(limit.clone()));
    kept.add(bytes);
    kept
}

/// The size with which a widget takes the rest of a limit.
fn rest_of(limit: &SharedLimit) -> i64 {
    i64::try_from(MOST - limit.used()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn kinds_share_a_limit_of_bytes_and_each_keeps_what_it_knows() {
    let limit = SharedLimit::new("all objects of this test", MOST);
    let (large, of_large) = Kind::holding(&limit, "team-a/l", 0).await;
    let (mut small, of_small) = Kind::holding(&limit, "team-a/s", 0).await;
    let rest = rest_of(&limit);
    of_large.put(&widget("team-a/l", 11, rest));
    until("the limit", || limit.used() == MOST).await;
    assert_eq!(limit.used(), large.bytes() + small.bytes());

    of_small.put(&widget("team-a/s", 11, 1));
    until("the reason", || small.is_beyond()).await;
    assert_eq!(held(&small.informer), ["team-a/s=0"]);
    assert_eq!(reason(&large.informer), "", "the others go on");
    // It may take what the other one leaves.
    of_large.put(&widget("team-a/l", 12, rest - 1));
    until("less", || limit.used() < MOST).await;
    let of_small = small.api.watch_from(10).await.open();
    of_small.put(&widget("team-a/s", 11, 1));
    until("the change", || held(&small.informer) == ["team-a/s=1"]).await;
    assert_eq!(reason(&small.informer), "");
    assert_eq!(limit.used(), MOST);
}

#[tokio::test(start_paused = true)]
async fn during_a_list_both_what_is_known_and_what_is_new_count_and_the_new_goes_first() {
    let limit = SharedLimit::new("all objects of this test", MOST);
    let (mut listed, watch) = Kind::holding(&limit, "team-a/a", 6_000).await;
    let _other = Kind::holding(&limit, "team-a/o", 0).await;
    let before = limit.used();

    watch.error(410, "too old");
    listed.api.list().await.page(20, &[widget("team-a/b", 20, 6_000)], Some("more"));
    // The list is given up, so that another one begins.
    let call = listed.api.list().await;
    assert!(listed.is_beyond(), "{}", reason(&listed.informer));
    assert_eq!((held(&listed.informer), limit.used()), (vec!["team-a/a=6000".to_owned()], before));
    // A list of known objects needs no place beside them.
    call.page(30, &[widget("team-a/a", 30, 6_001)], None);
    let _watch = listed.api.watch_from(30).await.open();
    until("the change", || held(&listed.informer) == ["team-a/a=6001"]).await;
    assert_eq!(reason(&listed.informer), "");
}

#[tokio::test(start_paused = true)]
async fn an_informer_that_ends_leaves_its_place_to_others() {
    let limit = SharedLimit::new("all objects of this test", MOST);
    let mut kind = Kind::start(&limit);
    kind.api.list().await.page(10, &[widget("team-a/a", 10, 6_000)], None);
    until("it", || limit.used() > 6_000).await;
    let Kind { informer, factory, .. } = kind;
    drop(informer);
    factory.shutdown().await;
    assert_eq!(limit.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_small_kind_grows_whatever_others_have() {
    let limit = SharedLimit::new("all objects of this test", 128 * 1_000);
    let _others = kept(&limit, 128 * 1_000);
    let (kind, watch) = Kind::holding(&limit, "team-a/a", 0).await;
    let rest = i64::try_from(1_000 - kind.bytes()).unwrap();
    watch.put(&widget("team-a/a", 11, rest));
    until("the change", || kind.bytes() == 1_000).await;
    assert_eq!(reason(&kind.informer), "");
    watch.put(&widget("team-a/a", 12, rest + 1));
    until("the reason", || reason(&kind.informer).contains("have more than 128000 bytes")).await;
    assert_eq!(kind.bytes(), 1_000);
}

#[test]
fn a_part_counts_in_the_whole_and_has_a_limit_of_its_own() {
    let whole = SharedLimit::new("all", 1_000);
    let part = whole.part("a part", 400);
    let mut of_part = kept(&part, 300);
    let mut of_others = kept(&whole, 600);
    assert_eq!((part.used(), whole.used()), (300, 900));
    let is_beyond = |kept: &Kept, more, name: &str| {
        let failure = kept.check_shared(more).unwrap_err().to_string();
        assert!(failure.contains(&format!("the kept fields of {name} have more than")), "{failure}");
    };
    assert!(of_part.check_shared(100).is_ok());
    is_beyond(&of_part, 101, "a part");
    assert!(of_others.check_shared(100).is_ok());
    is_beyond(&of_others, 101, "all");
    of_others.add(50);
    is_beyond(&of_part, 51, "all");
    of_part.subtract(10);
    assert_eq!((part.used(), whole.used()), (290, 940));
    drop((of_part, of_others));
    assert_eq!((part.used(), whole.used()), (0, 0));
}

#[test]
fn a_list_may_take_twice_the_bytes_of_a_kind() {
    let mut kept = Kept::new(100, None);
    kept.add(90);
    assert!(kept.check_list(110).is_ok());
    let failure = kept.check_list(111).unwrap_err().to_string();
    assert!(failure.contains("the kept fields of all objects have more than 100 bytes"), "{failure}");
    kept.add(200);
    assert!(kept.check_list(0).is_ok(), "what doesn't grow may stay");
}
