//! Who an agent is.

use tenure_git::actor::{Source, Wanted};
use tenure_git::policy::Policy;
use tenure_git::{Error, Repo};

use crate::support::*;

fn named(name: &str) -> Wanted {
    Wanted { name: Some(name.to_owned()), data_dir: None }
}

#[test]
fn the_first_act_makes_an_actor_and_two_first_acts_at_once_agree_on_it() {
    let world = World::on_path();
    let alone = world.alone("x");
    let now = world.clock.now();
    let ids: Vec<String> = std::thread::scope(|scope| {
        let act = || alone.repo.actor(&Wanted::default(), now).expect("an actor").0.id;
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(act)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert!(ids.iter().all(|id| Some(id) == ids.first()), "{ids:?}");
    assert_eq!(alone.repo.actors().expect("listed").len(), 1);
}

#[test]
fn looking_makes_no_actor() {
    let world = World::on_path();
    let alone = world.alone("x");
    assert!(alone.repo.existing_actor(&Wanted::default()).expect("no error").is_none());
    assert!(!alone.dir().join(".git/grite").exists());
}

#[test]
fn worktrees_have_defaults_of_their_own() {
    let world = World::on_path();
    let main = world.alone("x");
    git(main.dir(), &["commit", "-q", "--allow-empty", "-m", "first"]);
    git(main.dir(), &["worktree", "add", "-q", "../linked"]);
    let linked = Repo::discover(&world.dir.path().join("linked")).expect("a repository");
    let now = world.clock.now();
    let (first, source) = main.repo.actor(&Wanted::default(), now).expect("an actor");
    let (second, second_source) = linked.actor(&Wanted::default(), now).expect("an actor");
    assert_ne!(first.id, second.id);
    assert_eq!((source, second_source), (Source::RepoDefault, Source::Worktree));
    assert_eq!(linked.actor(&Wanted::default(), now).expect("the same").0.id, second.id);
    linked.use_actor(&first.id).expect("known");
    assert_eq!(linked.actor(&Wanted::default(), now).expect("chosen").0.id, first.id);
    assert_eq!(main.repo.actor(&Wanted::default(), now).expect("untouched").0.id, first.id);
}

#[test]
fn an_actor_is_named_by_id_prefix_or_label_and_never_by_a_path() {
    let world = World::on_path();
    let repo = world.alone("x").repo;
    let worker = repo.create_actor(Some("worker-1"), world.clock.now()).expect("made");
    for name in [worker.id.as_str(), worker.id.split_at(8).0, "worker-1"] {
        assert_eq!(repo.existing_actor(&named(name)).expect("found").map(|found| found.0.id), Some(worker.id.clone()));
    }
    std::fs::create_dir_all(world.dir.path().join("evil")).expect("made");
    std::fs::write(world.dir.path().join("evil/config.toml"), "actor_id = \"evil\"\n").expect("written");
    for bad in ["../../../../evil", "..", "", "nobody", "/etc", "ABCD", &"0".repeat(32)] {
        assert!(matches!(repo.existing_actor(&named(bad)), Err(Error::Actor(_))), "{bad}");
    }
    assert!(matches!(repo.create_actor(Some("worker-1"), world.clock.now()), Err(Error::BadInput(_))));
}

#[test]
fn a_default_that_is_missing_is_said_and_nobody_else_is_taken_instead() {
    let world = World::on_path();
    let repo = world.alone("x").repo;
    repo.create_actor(None, world.clock.now()).expect("made");
    let config = repo.config_file();
    let text = format!("default_actor = \"{}\"\nlock_policy = \"require\"\n", "0a".repeat(16));
    std::fs::write(&config, text).expect("written");
    assert!(matches!(repo.actor(&Wanted::default(), world.clock.now()), Err(Error::Actor(_))));
    std::fs::write(&config, "default_actor = \"../../evil\"\n").expect("written");
    assert!(matches!(repo.actor(&Wanted::default(), world.clock.now()), Err(Error::Actor(_))));
}

#[test]
fn making_the_first_actor_keeps_the_settings_that_are_there() {
    let world = World::on_path();
    let repo = world.alone("x").repo;
    std::fs::create_dir_all(repo.common_dir.join("grite")).expect("made");
    std::fs::write(repo.config_file(), "# ours\nlock_policy = \"require\"\n[snapshot]\nmax = 1\n").expect("written");
    let (actor, _) = repo.actor(&Wanted::default(), world.clock.now()).expect("made");
    let text = std::fs::read_to_string(repo.config_file()).expect("read");
    let expected =
        format!("default_actor = \"{}\"\n# ours\nlock_policy = \"require\"\n[snapshot]\nmax = 1\n", actor.id);
    assert_eq!(text, expected);
    assert_eq!(repo.policy().expect("read"), Policy::Require);
}

#[test]
fn a_data_directory_with_an_actor_is_that_actor() {
    let world = World::on_path();
    let repo = world.alone("x").repo;
    let home = world.dir.path().join("home");
    std::fs::create_dir_all(&home).expect("made");
    let wanted = Wanted { name: None, data_dir: Some(home.clone()) };
    assert!(matches!(repo.actor(&wanted, world.clock.now()), Err(Error::Actor(_))));
    std::fs::write(home.join("config.toml"), "actor_id = \"agent-7\"\n").expect("written");
    assert_eq!(repo.actor(&wanted, world.clock.now()).expect("there").0.id, "agent-7");
    std::fs::write(home.join("config.toml"), "actor_id = \"a\\nb\"\n").expect("written");
    assert!(repo.actor(&wanted, world.clock.now()).is_err());
}

#[test]
fn a_label_has_one_actor_also_when_many_ask_for_it_at_once() {
    let world = World::on_path();
    let alone = world.alone("x");
    let now = world.clock.now();
    for round in 0..rounds(10) {
        let label = format!("w{round}");
        let made = std::thread::scope(|scope| {
            let make = || alone.repo.create_actor(Some(&label), now).is_ok();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).filter(|ok| *ok).count()
        });
        assert_eq!(made, 1, "{label}");
    }
}

#[test]
fn a_name_that_fits_several_actors_says_which_ids_there_are() {
    let world = World::on_path();
    let repo = world.alone("x").repo;
    let one = repo.create_actor(Some("w"), world.clock.now()).expect("made");
    let two = repo.create_actor(None, world.clock.now()).expect("made");
    // As earlier versions could leave it.
    std::fs::write(two.dir.join("config.toml"), format!("actor_id = \"{}\"\nlabel = \"w\"\n", two.id))
        .expect("written");
    let said = repo.find_actor("w").expect_err("two").to_string();
    assert!(said.contains("name one by its id") && said.contains(&one.id) && said.contains(&two.id), "{said}");
}

#[test]
fn a_setting_that_is_spelled_in_quotes_is_changed_and_one_that_cannot_be_is_left() {
    let world = World::on_path();
    let repo = world.alone("x").repo;
    std::fs::create_dir_all(repo.common_dir.join("grite")).expect("made");
    std::fs::write(repo.config_file(), "\"lock_policy\" = \"require\"\n").expect("written");
    repo.set_policy(Policy::Off).expect("set");
    assert_eq!(repo.policy().expect("read"), Policy::Off);
    let strange = "\"lock\\u005fpolicy\" = \"require\"\n";
    std::fs::write(repo.config_file(), strange).expect("written");
    assert!(matches!(repo.set_policy(Policy::Off), Err(Error::Config { .. })));
    assert_eq!(std::fs::read_to_string(repo.config_file()).expect("read"), strange);
}
