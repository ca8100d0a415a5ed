//! Tests of batches, rate, retries, bounds and the end.

use super::*;

#[tokio::test]
async fn a_change_is_posted_as_json() {
    let receiver = Receiver::start([]).await;
    let notifier = receiver.notifier(SinkKind::Webhook, Limits::default(), quick());
    notifier.offer(&modified("a"));
    let (_, message) = receiver.messages(1).await.remove(0);
    assert_eq!((&message["schemaVersion"], &message["dropped"]), (&json!(1), &json!(0)));
    let expected: Value = serde_json::from_str(&modified("a").to_json()).unwrap();
    assert_eq!(message["changes"], json!([expected]));
}

#[tokio::test]
async fn changes_that_come_together_are_one_message_in_their_order() {
    let receiver = Receiver::start([]).await;
    let pace = Pace { gather: Duration::from_millis(50), ..quick() };
    let notifier = receiver.notifier(SinkKind::Webhook, Limits::default(), pace);
    for name in ["a", "b", "c"] {
        notifier.offer(&modified(name));
    }
    assert_eq!(names(&receiver.messages(1).await[0].1), ["a", "b", "c"]);
}

#[tokio::test]
async fn messages_keep_their_distance() {
    let receiver = Receiver::start([]).await;
    let pace = Pace { interval: Duration::from_millis(150), ..quick() };
    let notifier = receiver.notifier(SinkKind::Webhook, Limits::default(), pace);
    for (count, name) in ["a", "b", "c"].into_iter().enumerate() {
        notifier.offer(&modified(name));
        receiver.messages(count + 1).await;
    }
    let messages = receiver.messages(3).await;
    for pair in messages.windows(2) {
        // The interval is counted from the start of a request.
        assert!(pair[1].0 - pair[0].0 >= Duration::from_millis(100));
    }
}

#[rstest::rstest]
#[case::server_errors(&[Answer::Status(500), Answer::Status(503)])]
#[case::too_many_requests(&[Answer::Status(429)])]
#[case::too_slow(&[Answer::Never])]
#[tokio::test]
async fn a_notification_is_sent_again_after_a_server_error_a_429_or_a_timeout(#[case] answers: &[Answer]) {
    let receiver = Receiver::start(answers.to_vec()).await;
    let pace = Pace { timeout: Duration::from_millis(200), ..quick() };
    let notifier = receiver.notifier(SinkKind::Webhook, Limits::default(), pace);
    notifier.offer(&modified("a"));
    let messages = receiver.messages(answers.len() + 1).await;
    assert!(messages.iter().all(|(_, message)| names(message) == ["a"]));
    let [summary] = &notifier.drain(PATIENCE).await[..] else { panic!("one rule") };
    assert_eq!((summary.counts.sent, summary.counts.messages, summary.has_losses()), (1, 1, false));
}

#[tokio::test]
async fn a_receiver_says_when_to_come_again() {
    let receiver = Receiver::start([Answer::RetryAfter(429, "1")]).await;
    let notifier = receiver.notifier(SinkKind::Slack, Limits::default(), quick());
    notifier.offer(&modified("a"));
    let messages = receiver.messages(2).await;
    assert!(messages[1].0 - messages[0].0 >= Duration::from_millis(990));
}

#[tokio::test]
async fn a_receiver_that_asks_for_no_pause_gets_longer_and_longer_ones() {
    let receiver = Receiver::start(vec![Answer::RetryAfter(503, "0"); 4]).await;
    let pace = Pace { backoff: Duration::from_millis(20), longest_backoff: Duration::from_secs(1), ..quick() };
    let notifier = receiver.notifier(SinkKind::Webhook, Limits::default(), pace);
    notifier.offer(&modified("a"));
    let messages = receiver.messages(5).await;
    for (pair, pause) in messages.windows(2).zip([20, 40, 80, 160]) {
        assert!(pair[1].0 - pair[0].0 >= Duration::from_millis(pause), "after {pause} ms");
    }
}

#[rstest::rstest]
#[case::not_found(404)]
#[case::forbidden(403)]
#[case::gone(410)]
#[tokio::test]
async fn a_refusal_is_final_and_reported_with_the_next_message(#[case] code: u16) {
    let receiver = Receiver::start([Answer::Status(code)]).await;
    let notifier = receiver.notifier(SinkKind::Webhook, Limits::default(), quick());
    notifier.offer(&modified("a"));
    receiver.messages(1).await;
    notifier.offer(&modified("b"));
    let messages = receiver.messages(2).await;
    assert_eq!((names(&messages[1].1), &messages[1].1["dropped"]), (vec!["b".to_owned()], &json!(1)));
    let [summary] = &notifier.drain(PATIENCE).await[..] else { panic!("one rule") };
    assert_eq!((summary.counts.failed, summary.counts.sent), (1, 1));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = Receiver::start([]).await;
    let receiver = Receiver::start([Answer::Redirect(elsewhere.url())]).await;
    let notifier = receiver.notifier(SinkKind::Webhook, Limits::default(), quick());
    notifier.offer(&modified("a"));
    receiver.messages(1).await;
    let [summary] = &notifier.drain(PATIENCE).await[..] else { panic!("one rule") };
    assert_eq!((summary.counts.failed, elsewhere.received()), (1, 0));
}

#[tokio::test]
async fn a_notification_that_fails_for_too_long_is_given_up() {
    let receiver = Receiver::start(vec![Answer::Status(500); 1000]).await;
    let pace = Pace { give_up: Duration::from_secs(1), ..quick() };
    let notifier = receiver.notifier(SinkKind::Webhook, Limits::default(), pace);
    notifier.offer(&modified("a"));
    let [summary] = &notifier.drain(PATIENCE).await[..] else { panic!("one rule") };
    assert_eq!((summary.counts.failed, summary.counts.queued), (1, 0));
    assert!(receiver.received() > 1);
}

#[tokio::test]
async fn a_full_queue_drops_the_oldest_and_counts_them() {
    let receiver = Receiver::start([Answer::Never]).await;
    let pace = Pace { timeout: Duration::from_secs(2), ..quick() };
    let limits = Limits { changes: 3, bytes: usize::MAX };
    let notifier = receiver.notifier(SinkKind::Webhook, limits, pace);
    notifier.offer(&modified("first"));
    // This one is being sent, so it isn't in the queue.
    receiver.messages(1).await;
    let began = std::time::Instant::now();
    for n in 0..10 {
        notifier.offer(&modified(&n.to_string()));
    }
    assert!(began.elapsed() < Duration::from_secs(1), "offering doesn't wait for the receiver");
    assert_eq!(notifier.summary()[0].counts.dropped, 7);
    let messages = receiver.messages(3).await;
    assert_eq!(
        (names(&messages[2].1), &messages[2].1["dropped"]),
        (["7", "8", "9"].map(str::to_owned).to_vec(), &json!(7))
    );
    let [summary] = &notifier.drain(PATIENCE).await[..] else { panic!("one rule") };
    assert_eq!((summary.counts.offered, summary.counts.sent, summary.counts.dropped), (11, 4, 7));
    assert!(summary.has_losses() && summary.to_string().contains("7 dropped from a full queue"), "{summary}");
}

#[tokio::test]
async fn a_queue_is_bounded_in_bytes_too() {
    let receiver = Receiver::start([Answer::Never]).await;
    let limits = Limits { changes: 1000, bytes: 3 * modified("0").to_json().len() };
    let notifier = receiver.notifier(SinkKind::Webhook, limits, quick());
    notifier.offer(&modified("a"));
    receiver.messages(1).await;
    for n in 0..9 {
        notifier.offer(&modified(&n.to_string()));
    }
    assert_eq!(notifier.summary()[0].counts.dropped, 6);
}

#[tokio::test]
async fn at_the_end_what_is_queued_is_sent_without_delay_a_hundred_at_a_time() {
    let receiver = Receiver::start([]).await;
    let pace = Pace { gather: Duration::from_secs(3600), interval: Duration::from_secs(3600), ..quick() };
    let notifier = receiver.notifier(SinkKind::Webhook, Limits::default(), pace);
    for n in 0..150 {
        notifier.offer(&modified(&n.to_string()));
    }
    let [summary] = &notifier.drain(PATIENCE).await[..] else { panic!("one rule") };
    assert_eq!((summary.counts.sent, summary.counts.messages), (150, 2));
    let sizes: Vec<_> = receiver.messages(2).await.iter().map(|(_, message)| names(message).len()).collect();
    assert_eq!(sizes, [100, 50]);
    notifier.offer(&modified("late"));
    assert_eq!(notifier.summary()[0].counts.offered, 150);
}

#[rstest::rstest]
#[case::failing(Answer::Status(500), Duration::from_secs(3600))]
#[case::one_that_asked_for_time(Answer::RetryAfter(503, "200"), quick().backoff)]
#[tokio::test]
async fn a_receiver_is_tried_again_at_once_at_the_end(#[case] answer: Answer, #[case] backoff: Duration) {
    let receiver = Receiver::start([answer]).await;
    let notifier = receiver.notifier(SinkKind::Webhook, Limits::default(), Pace { backoff, ..quick() });
    notifier.offer(&modified("a"));
    receiver.messages(1).await;
    let began = std::time::Instant::now();
    let [summary] = &notifier.drain(PATIENCE).await[..] else { panic!("one rule") };
    assert_eq!((summary.counts.sent, receiver.received()), (1, 2));
    assert!(began.elapsed() < Duration::from_secs(10), "it slept on for {:?}", began.elapsed());
}

#[tokio::test]
async fn the_end_comes_in_time_whatever_the_receiver_does() {
    let receiver = Receiver::start([Answer::Never]).await;
    let notifier = receiver.notifier(SinkKind::Webhook, Limits::default(), quick());
    notifier.offer(&modified("a"));
    receiver.messages(1).await;
    notifier.offer(&modified("b"));
    let began = std::time::Instant::now();
    let [summary] = &notifier.drain(Duration::from_millis(200)).await[..] else { panic!("one rule") };
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(summary.counts.queued, 2);
    assert!(summary.has_losses());
}

#[tokio::test]
async fn one_receiver_that_hangs_holds_up_no_other() {
    let (hanging, working) = (Receiver::start([Answer::Never]).await, Receiver::start([]).await);
    let rule = |name: &str, receiver: &Receiver| Rule::everything(name, receiver.destination(SinkKind::Webhook));
    let rules = vec![rule("hanging", &hanging), rule("working", &working)];
    let notifier = Notifier::start(rules, Limits::default(), quick(), &Handle::current()).unwrap();
    notifier.offer(&modified("a"));
    hanging.messages(1).await;
    working.messages(1).await;
    notifier.offer(&modified("b"));
    assert_eq!(names(&working.messages(2).await[1].1), ["b"]);
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_hangs_holds_up_no_other_rule() {
    let (hanging, working) = (Receiver::start([]).await, Receiver::start([]).await);
    let rule = |name: &str, receiver: &Receiver| Rule::everything(name, receiver.destination(SinkKind::Webhook));
    let rules = vec![rule("hanging", &hanging), rule("working", &working)];
    let notifier = Notifier::start(rules, Limits::default(), quick(), &Handle::current()).unwrap();
    // Opening a pipe blocks until somebody writes to it.
    std::fs::remove_file(hanging.file()).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(hanging.file()).status().unwrap().success());
    notifier.offer(&modified("a"));
    assert_eq!(names(&working.messages(1).await[0].1), ["a"]);
    let (file, url) = (hanging.file(), hanging.url());
    tokio::task::spawn_blocking(move || std::fs::write(file, url)).await.unwrap().unwrap();
    assert_eq!(names(&hanging.messages(1).await[0].1), ["a"]);
}

#[tokio::test]
async fn a_rotated_url_is_used_with_the_next_attempt() {
    let (old, new) = (Receiver::start([Answer::Status(500)]).await, Receiver::start([]).await);
    let notifier =
        old.notifier(SinkKind::Webhook, Limits::default(), Pace { backoff: Duration::from_millis(300), ..quick() });
    notifier.offer(&modified("a"));
    old.messages(1).await;
    std::fs::write(old.file(), new.url()).unwrap();
    assert_eq!(names(&new.messages(1).await[0].1), ["a"]);
    assert_eq!(old.received(), 1);
}
