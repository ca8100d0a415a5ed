//! Tests of slow and missing readers, and of notifications during that time.

use std::sync::{Condvar, Mutex};

use super::*;

/// An output whose writes block until it is opened.
#[derive(Clone, Default)]
struct Stuck {
    open: Arc<(Mutex<bool>, Condvar)>,
    printed: Printed,
}

impl Stuck {
    fn open(&self) {
        *self.open.0.lock().unwrap() = true;
        self.open.1.notify_all();
    }
}

impl Write for Stuck {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let (open, opened) = &*self.open;
        drop(opened.wait_while(open.lock().unwrap(), |open| !*open).unwrap());
        self.printed.write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An output without a reader.
struct Gone;

impl Write for Gone {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts a Slack-like receiver that keeps its messages, and returns its URL.
async fn receiver() -> (String, watch::Receiver<Vec<Value>>) {
    let (router, received) = testkit::receiver();
    let (address, _) = testkit::serve(router).await;
    (format!("http://{address}/services/T0P-S3CR3T"), received)
}

async fn messages(received: &watch::Receiver<Vec<Value>>, count: usize) -> Vec<Value> {
    let mut received = received.clone();
    let enough = received.wait_for(|received| received.len() >= count);
    tokio::time::timeout(PATIENCE, enough).await.expect("messages come").unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slack_like_receiver_gets_what_changes_and_not_what_was_there() {
    let fake = Fake::usual().await;
    let (url, received) = receiver().await;
    let file = fake.folder().join("url");
    std::fs::write(&file, url).unwrap();
    fake.put("machines", "team-a/there", json!({}));
    let slack = format!("file:{}", file.display());
    let scene = Scene::start(&fake, &["machines", "-o", "none", "--show-initial", "--slack-webhook", &slack]).await;
    fake.put("machines", "team-a/new", json!({}));
    let message = messages(&received, 1).await.remove(0);
    assert_eq!(message, json!({"text": "*Machine team-a/new* added"}));
    scene.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_say_what_goes_where() {
    let fake = Fake::usual().await;
    let (url, received) = receiver().await;
    let file = fake.folder().join("url");
    std::fs::write(&file, url).unwrap();
    let rules = fake.folder().join("rules.yaml");
    let to = format!("to: {{form: webhook, urlFile: {}}}", file.display());
    std::fs::write(&rules, format!("rules: [{{name: ops, kinds: [Machine], types: [added], {to}}}]")).unwrap();
    fake.put("machines", "team-a/there", json!({}));
    let scene = Scene::start(&fake, &["machines,clusters", "--notify-rules", &rules.display().to_string()]).await;
    fake.put("clusters", "team-a/one", json!({}));
    fake.put("machines", "team-a/there", json!({"spec": {"a": 1}}));
    scene.printed.lines(2).await;
    fake.put("machines", "team-a/new", json!({}));
    let message = messages(&received, 1).await.remove(0);
    assert_eq!(shorts(message["changes"].as_array().unwrap()), ["ADDED Machine new"]);
    scene.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_is_stuck_holds_up_no_watch_and_no_notification() {
    let fake = Fake::usual().await;
    let (url, received) = receiver().await;
    let file = fake.folder().join("url");
    std::fs::write(&file, url).unwrap();
    let out = Stuck::default();
    let webhook = format!("file:{}", file.display());
    let watch = begin(&fake, &["machines", "--webhook", &webhook], out.clone()).await.unwrap();
    all_reported(&watch).await;
    for n in 0..300 {
        fake.put("machines", &format!("team-a/m{n}"), json!({}));
    }
    let mut heard = 0;
    let mut count = 0;
    while heard < 300 {
        count += 1;
        let reported = messages(&received, count).await;
        heard = reported.iter().map(|message| message["changes"].as_array().unwrap().len()).sum();
    }
    // Changes that wait for the reader are merged: many changes of one object are one line.
    for n in 0..100 {
        fake.put("machines", "team-a/m299", json!({"spec": {"n": n}}));
    }
    fake.put("machines", "team-a/last", json!({}));
    loop {
        count += 1;
        let reported = messages(&received, count).await;
        if reported.last().unwrap().to_string().contains("\"last\"") {
            break;
        }
    }
    assert_eq!(*out.printed.0.borrow(), "");
    out.open();
    let lines = out.printed.json(301).await;
    let of_last: Vec<_> = lines.iter().filter(|line| line["name"] == "m299").collect();
    assert_eq!(of_last.len(), 1, "{of_last:?}");
    assert_eq!(of_last[0]["patch"][0]["value"]["spec"]["n"], 99);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_comes_while_a_reader_is_stuck() {
    let fake = Fake::usual().await;
    let out = Stuck::default();
    let watch = begin(&fake, &["machines"], out.clone()).await.unwrap();
    all_reported(&watch).await;
    for n in 0..200 {
        fake.put("machines", &format!("team-a/m{n}"), json!({}));
    }
    let shutdown = Shutdown::new();
    shutdown.request();
    let end = tokio::time::timeout(Duration::from_secs(8), watch.finish(&shutdown)).await;
    end.expect("it ends in time").unwrap();
    // The writer thread still blocks.
    out.open();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_goes_away_ends_it_quietly() {
    let fake = Fake::usual().await;
    let watch = begin(&fake, &["machines"], Gone).await.unwrap();
    all_reported(&watch).await;
    fake.put("machines", "team-a/a", json!({}));
    tokio::time::timeout(PATIENCE, watch.finish(&Shutdown::new())).await.expect("it ends by itself").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_printer_writes_all_changes_that_were_printed_before_its_end() {
    let out = Printed::default();
    let (printer, writing) = printer::Printer::start(out.clone(), printer::Form::Json).unwrap();
    let kind = change_stream::changes::Kind {
        group: String::new(),
        version: "v1".into(),
        kind: "Node".into(),
        plural: "nodes".into(),
    };
    let identity = change_stream::changes::Identity {
        time: jiff::Timestamp::UNIX_EPOCH,
        cluster: "workload",
        kind: Arc::new(kind),
        namespace: String::new(),
        name: "one".into(),
        uid: "u".into(),
        resource_version: "1".into(),
    };
    for _ in 0..500 {
        printer.print(&change_stream::changes::Change::deleted(identity.clone(), None, false));
    }
    drop(printer);
    writing.finish(PATIENCE).await.unwrap();
    assert_eq!(out.json(500).await.len(), 500);
}
