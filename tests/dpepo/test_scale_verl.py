"""The adapter to verl, in its own environment (.ci/verl): no GPU, replies are scripted."""

from __future__ import annotations

import asyncio
import random
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # verl warns of each engine that is not installed
    pytest.importorskip("verl", exc_type=ImportError)
    from dpepo.scale.verl import ParallelLoop, _idle
    from dpepo.scale.verl_turns import ESTIMATORS, Note, TurnBuffer, rows_of

import ray
import torch
import transfer_queue as tq
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, PreTrainedTokenizerFast
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput, DictConfigWrap
from verl.protocol import DataProto
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.trainer.ppo.padding_utils import upsample_batch_to_divisible_size
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.trainer.ppo.v1 import AgentLoopWorkerTQ, PPOTrainer
from verl.utils import tensordict_utils
from verl.utils.config import validate_config
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn
from verl.workers.rollout.replica import TokenOutput

import dpepo.scale
from agents import AgentError, View
from agents.chat.hf import prompt_tokens
from agents.chat.model import Decoding, Message
from agents.chat.scripted import ScriptedModel
from agents.chat_agent import ChatAgent
from agents.prompt import style
from dpepo import advantages
from dpepo.scale import verl_data
from dpepo.weights import episode_weights
from parallel_envs import EngineError, ParallelTextEnv
from parallel_envs.episode import Episode
from parallel_envs.toy import ToyGame, ToyTasks
from tests.engines import SMALL, make

# verl warns of its own functions.
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*verl.* is deprecated:FutureWarning", "ignore:Disabled critic:UserWarning"
)

TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
NEAR, FAR = "coin-attic/trap-cellar", "coin-garden/trap-cellar"
Answer = Callable[[str], str]


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer whose tokens are bytes, so that nothing that is said gets lost."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    known = {token: number for number, token in enumerate(["<pad>", "</s>", *alphabet])}
    tokenizer = Tokenizer(models.BPE(known, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>")
    made.chat_template = TEMPLATE
    return made


TOKENIZER = byte_tokenizer()


def spelled(text: str) -> list[int]:
    return [*TOKENIZER(text).input_ids, TOKENIZER.eos_token_id]


class Server:
    """What verl's client for its generation servers is to an agent loop."""

    def __init__(self, answer: Answer, pauses: random.Random | None = None) -> None:
        self.answer, self.pauses = answer, pauses
        self.asked: list[dict[str, Any]] = []

    async def generate(
        self,
        request_id: str,
        *,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        priority: int = 0,
    ) -> TokenOutput:
        self.asked.append({"id": request_id, "params": sampling_params, "priority": priority})
        for _ in range(self.pauses.randrange(5) if self.pauses else 0):
            await asyncio.sleep(0)
        said = spelled(self.answer(TOKENIZER.decode(prompt_ids)))
        logps = [-0.5] * len(said)
        steps = {"global_steps": 3, "min_global_steps": 3, "max_global_steps": 3}
        return TokenOutput(
            token_ids=said, log_probs=logps, stop_reason="completed", extra_fields=steps
        )


@cache
def composed() -> DictConfig:
    with initialize_config_dir(str(Path(dpepo.scale.__path__[0])), version_base=None):
        config = compose("dpepo", ["hydra.searchpath=[pkg://verl.trainer.config]"])
    OmegaConf.set_struct(config, False)
    return config


@cache
def configured(*overrides: str) -> DictConfig:
    """Return verl's configuration as `dpepo.yaml` makes it, with some values of our own."""
    given = ["data.train_files=none", "data.val_files=none", "actor_rollout_ref.model.path=none"]
    config = OmegaConf.merge(composed(), OmegaConf.from_dotlist([*given, *overrides]))
    assert isinstance(config, DictConfig)
    return config


def loop(server: Server, *overrides: str) -> ParallelLoop:
    config = configured(*overrides)
    return ParallelLoop(
        trainer_config=DictConfigWrap(config),
        server_manager=server,
        tokenizer=TOKENIZER,
        processor=None,
        dataset_cls=RLHFDataset,
        data_config=DictConfigWrap(config.data),
    )


async def played(
    server: Server, *overrides: str, env: str = "toy", split: str = "train", **given: Any
) -> list[AgentLoopOutput]:
    row = {"env": env, "split": split, "task_id": NEAR, "uid": "u", "session_id": 0, "index": 7}
    return await loop(server, *overrides).run({"temperature": 1.0}, **{**row, **given})


def notes_of(outputs: Sequence[AgentLoopOutput]) -> list[Note]:
    return [Note.read(output.extra_fields["turn"]) for output in outputs]


def seek(prompt: str) -> str:
    """Go east in every replica until there is a box, and take what is in it."""
    shown = prompt.rpartition("user:")[2]
    action = "go east"
    if "There is a coin in it." in shown:
        action = "take coin"
    elif "A box is here." in shown:
        action = "open box"
    entries = "".join(f"<env_{env}>{action}</env_{env}>" for env in (1, 2))
    return f"<think>Hm.</think><parallel>{entries}</parallel>"


def by_chat_agent(answer: Answer, **given: Any) -> tuple[ScriptedModel, Episode]:
    """Play the same as the loop does with the project's own agent, on the same texts."""

    def said(messages: Sequence[Message]) -> str:
        return answer(TOKENIZER.decode(prompt_tokens(TOKENIZER, messages)))

    model = ScriptedModel(said)
    agent = ChatAgent(model, style("paper"), Decoding(max_tokens=1 << 20))
    env = ParallelTextEnv(ToyTasks("train"), 2, **given)
    observation, info = env.reset(options={"task_id": NEAR})
    view = View(observation, info, np.random.default_rng(0), env.expert_plan, env.max_turns)
    over = False
    while not over:
        (joint,) = agent.act([view])
        assert not isinstance(joint, AgentError)
        view.observation, _, won, cut, view.info = env.step(joint)
        over = won or cut
    return model, view.info["record"]


def test_a_turn_is_an_output_with_its_own_prompt_and_all_of_its_reply() -> None:
    server = Server(seek)
    outputs = asyncio.run(played(server, "parallel.n=2", priority=np.int64(5)))
    model, episode = by_chat_agent(seek)
    assert episode.won
    assert len(outputs) == len(episode.turns) == 3
    for output, request in zip(outputs, model.asked, strict=True):
        assert output.prompt_ids == prompt_tokens(TOKENIZER, request.messages)
        text = TOKENIZER.decode(output.prompt_ids)
        assert output.response_ids == spelled(seek(text))
        assert output.response_mask == [1] * len(output.response_ids)
        assert output.response_logprobs == [-0.5] * len(output.response_ids)
        assert output.num_turns == 3
        assert output.extra_fields["max_global_steps"] == 3
        assert output.extra_fields["reward_extra_info"] == {"won": 1.0, "env_steps": 6.0}
    assert server.asked == [
        {"id": server.asked[0]["id"], "params": {"temperature": 1.0}, "priority": 5}
    ] * len(outputs)


def test_token_rewards_are_the_return_and_notes_say_what_each_turn_paid() -> None:
    outputs = asyncio.run(played(Server(seek), "parallel.n=2", uid="a-b", session_id=4))
    _, episode = by_chat_agent(seek)
    for output in outputs:
        rewards = output.as_dict()["rm_scores"]
        assert rewards.shape == (len(output.response_ids),)
        assert rewards[-1] == episode.best_score == 1.0
        assert not rewards[:-1].any()
    notes = notes_of(outputs)
    assert [(note.group, note.trajectory, note.turn) for note in notes] == [
        ("a-b", 4, turn) for turn in range(3)
    ]
    assert (
        [note.reward for note in notes] == [turn.reward for turn in episode.turns] == [0, 0.5, 0.5]
    )
    assert [note.weight for note in notes] == list(episode_weights(episode))
    assert [note.anchor for note in notes] == [
        "|".join([f"{room}{opened}000"] * 2)
        for room, opened in (("hall", 0), ("attic", 0), ("attic", 1))
    ]


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I would go east.",
        "<parallel><env_1>go east</env_1><env_1>look</env_1><env_2>look</env_2></parallel>",
        "<parallel><env_3>look</env_3><env_2>GO EAST</env_2></parallel>",
        "<parallel><env_1>fly\nlook</env_1><env_2>**go west.**</env_2></parallel>",
        "<think>Never closed. <parallel><env_1>look</env_1></parallel>",
        "<parallel><env_1>go east</env_1><env_2>go w",
        "Ünï<env_1>ring bell</env_1>",
    ],
)
def test_malformed_replies_come_to_what_they_come_to_in_our_own_agent(reply: str) -> None:
    outputs = asyncio.run(played(Server(lambda _: reply), "parallel.n=2", "parallel.max_turns=4"))
    model, episode = by_chat_agent(lambda _: reply, max_turns=4)
    # Prompts quote all that was done and what came of it.
    assert [output.prompt_ids for output in outputs] == [
        prompt_tokens(TOKENIZER, request.messages) for request in model.asked
    ]
    assert [note.weight for note in notes_of(outputs)] == list(episode_weights(episode))
    assert outputs[-1].reward_score == episode.best_score == 0.0


def test_episodes_that_are_played_beside_one_another_do_not_mix() -> None:
    tasks = [task.id for task in ToyTasks("train").tasks[::2]]

    async def together(given: Sequence[str]) -> list[list[AgentLoopOutput]]:
        server = Server(seek, random.Random(0))
        return await asyncio.gather(
            *(
                played(server, "parallel.n=2", task_id=task, uid=task, session_id=i % 2)
                for i, task in enumerate(given)
            )
        )

    for outputs, task, number in zip(
        asyncio.run(together(tasks * 2)), tasks * 2, range(len(tasks) * 2), strict=True
    ):
        alone = asyncio.run(
            played(Server(seek), "parallel.n=2", task_id=task, uid=task, session_id=number % 2)
        )
        assert [output.as_dict()["extra_fields"] for output in outputs] == [
            output.as_dict()["extra_fields"] for output in alone
        ]
        assert [output.prompt_ids for output in outputs] == [o.prompt_ids for o in alone]


def test_a_real_game_is_won() -> None:
    env = make("alfworld", n=1)
    env.reset(options={"task_id": SMALL["alfworld"]})
    plan = env.expert_plan(0)
    env.close()
    said = iter(plan)
    outputs = asyncio.run(
        played(
            Server(lambda _: f"<parallel><env_2>{next(said)}</env_2></parallel>"),
            "data.max_prompt_length=100000",  # of bytes
            env="alfworld",
            split="valid_unseen",
            task_id=SMALL["alfworld"],
        )
    )
    assert len(outputs) == len(plan)
    assert [note.reward for note in notes_of(outputs)] == [0.0] * (len(plan) - 1) + [1.0]
    assert all(output.reward_score == 1.0 for output in outputs)


def test_what_fails_is_an_error_and_its_environment_is_not_lent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = ("parallel.n=2", "parallel.max_turns=13")
    idle = _idle("toy", "train", 2, 13)
    asyncio.run(played(Server(seek), *own))
    maker, used = idle
    asyncio.run(played(Server(seek), *own))
    assert idle == [maker, used]

    def broken(*_: Any) -> Any:
        raise EngineError("the house is on fire")

    with monkeypatch.context() as patch:
        patch.setattr(ToyGame, "step", broken)
        with pytest.raises(EngineError, match="on fire"):
            asyncio.run(played(Server(seek), *own))
    assert idle == [maker]
    assert len(asyncio.run(played(Server(seek), *own))) == 3
    assert used not in idle


def test_a_prompt_that_cannot_be_cut_to_the_limit_says_which_limit() -> None:
    with pytest.raises(ValueError, match=r"tokens, and data.max_prompt_length is 300"):
        asyncio.run(played(Server(seek), "data.max_prompt_length=300"))


def test_a_long_history_is_cut_to_the_limit() -> None:
    limit = 1700
    outputs = asyncio.run(
        played(
            Server(lambda _: "<parallel><env_1>look</env_1><env_2>look</env_2></parallel>"),
            f"data.max_prompt_length={limit}",
            "parallel.n=2",
        )
    )
    assert len(outputs) == 25
    assert limit - 200 < max(len(output.prompt_ids) for output in outputs) <= limit


def test_a_server_that_says_nothing_is_an_error() -> None:
    class Silent(Server):
        async def generate(self, *_: Any, **__: Any) -> TokenOutput:
            return TokenOutput(token_ids=[], stop_reason="aborted")

    with pytest.raises(RuntimeError, match=r"sent no token \(aborted\)"):
        asyncio.run(played(Silent(seek)))


def test_a_chat_template_option_that_would_have_no_effect_is_refused() -> None:
    with pytest.raises(ValueError, match="apply_chat_template_kwargs"):
        asyncio.run(played(Server(seek), "data.apply_chat_template_kwargs.enable_thinking=false"))


# Advantages.


def some_notes() -> list[Note]:
    """Two groups of two attempts, one of them with a failure that took four turns."""
    return [
        Note("a", 0, 0, 0.0, 1.0, "s"),
        Note("a", 0, 1, 1.0, 0.9, "t"),
        *(Note("a", 1, turn, 0.0, 0.5 + turn / 10, "st"[turn % 2]) for turn in range(4)),
        Note("b", 0, 0, 0.5, 1.0, "s"),
        Note("b", 1, 0, 0.0, 0.7, "s"),
        Note("b", 1, 1, 0.0, 0.6, "u"),
    ]


def batch_of(index: Sequence[str], lengths: Sequence[int]) -> DataProto:
    mask = torch.zeros(len(index), max(lengths))
    for row, length in enumerate(lengths):
        mask[row, :length] = 1
    return DataProto(
        TensorDict({"response_mask": mask, "token_level_rewards": mask * 0}, len(index)),
        {"uid": np.array(index, dtype=object)},
    )


@pytest.mark.parametrize("std", [True, False])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators_give_what_ours_give_on_the_same_rows(name: str, std: bool) -> None:
    notes = some_notes()
    random.Random(1).shuffle(notes)
    index = [*(note.write() for note in notes), "pad0123"]
    lengths = [1 + place % 4 for place in range(len(index))]
    config = {"norm_adv_by_std_in_grpo": std, "gamma": 0.9, "use_kl_in_reward": False}
    data = compute_advantage(batch_of(index, lengths), name, config=config)

    rows = rows_of(notes)
    ours = getattr(advantages, ESTIMATORS[name])
    options: dict[str, Any] = {} if name == "turn_rloo" else {"std": std}
    expected = ours(rows, **options, **({"gamma": 0.9} if name == "gigpo" else {}))
    assert np.abs(expected).max() > 0.1
    for row, (value, length) in enumerate(zip([*expected, 0.0], lengths, strict=True)):
        found = data.batch["advantages"][row].tolist()
        assert found[:length] == pytest.approx([value] * length, abs=1e-6)
        assert found[length:] == [0.0] * (max(lengths) - length)
    assert torch.equal(data.batch["returns"], data.batch["advantages"])


def test_notes_become_rows_by_group_and_attempt() -> None:
    rows = rows_of(some_notes())
    assert rows.group.tolist() == [0] * 6 + [1] * 3
    assert rows.trajectory.tolist() == [0, 0, 1, 1, 1, 1, 2, 3, 3]
    assert rows.returns.tolist() == [1, 1, 0, 0, 0, 0, 0.5, 0, 0]


def test_rows_without_notes_and_rewards_with_a_kl_term_are_refused() -> None:
    estimate = get_adv_estimator_fn("dpepo")
    rewards = mask = torch.ones(1, 3)
    with pytest.raises(ValueError, match="needs a note of each turn"):
        estimate(token_level_rewards=rewards, response_mask=mask, index=["a-uid"], config={})
    (note, *_), config = some_notes(), {"use_kl_in_reward": True}
    with pytest.raises(ValueError, match="use_kl_loss"):
        estimate(
            token_level_rewards=rewards, response_mask=mask, index=[note.write()], config=config
        )


# What verl makes of it.


def test_the_configuration_is_one_that_verl_accepts() -> None:
    config = configured("actor_rollout_ref.model.lora_rank=0")  # LoRA asks for vLLM
    assert not need_critic(config)
    assert need_reference_policy(config)
    validate_config(config, use_reference_policy=True, use_critic=False)
    assert config.trainer.v1.sampler.sampler_kwargs.estimator == "dpepo"
    # The paper's: 4 tasks of 8 attempts, of 25 turns in 4 replicas; 32 turns a mini-batch.
    attempts = config.actor_rollout_ref.rollout.n
    assert (config.data.train_batch_size, attempts) == (4, 8)
    assert (config.parallel.n, config.parallel.max_turns) == (4, 25)
    assert config.actor_rollout_ref.actor.ppo_mini_batch_size * attempts == 32


def test_verl_reads_the_data_set_and_the_loop_plays_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "data" / "toy.parquet"
    verl_data.main(path, env="toy", split="train", tasks=4, seed=1)
    config = configured(f"data.cache_dir={tmp_path}").data
    data = RLHFDataset(str(path), TOKENIZER, config)
    drawn = [data[i]["task_id"] for i in range(len(data))]
    assert len(set(drawn)) == 4
    assert set(drawn) <= {task.id for task in ToyTasks("train").tasks}
    batch = collate_fn([data[i] for i in range(4)])
    row = {name: values[2] for name, values in batch.items()}
    outputs = asyncio.run(played(Server(seek), "parallel.n=2", **row))
    assert row["task_id"] == drawn[2]
    assert outputs[-1].reward_score in (0.0, 1.0)


def test_all_tasks_are_written_in_the_order_of_the_split_and_too_many_are_refused(
    tmp_path: Path,
) -> None:
    verl_data.main(tmp_path / "toy.parquet", env="toy", split="test")
    config = configured(f"data.cache_dir={tmp_path}").data
    data = RLHFDataset(str(tmp_path / "toy.parquet"), TOKENIZER, config)
    assert [row["task_id"] for row in data.dataframe] == [t.id for t in ToyTasks("test").tasks]
    with pytest.raises(Exception, match=r"must be in 0\.\.3"):
        verl_data.main(tmp_path / "toy.parquet", env="toy", split="test", tasks=4)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DictConfig]:
    """verl's store of rows, on a small Ray; a configuration with a model that has no weights."""
    TOKENIZER.save_pretrained(tmp_path)
    LlamaConfig(architectures=["LlamaForCausalLM"]).save_pretrained(tmp_path)
    small = "transfer_queue.backend.SimpleStorage"
    config = configured(
        f"actor_rollout_ref.model.path={tmp_path}",
        "parallel.n=2",
        "actor_rollout_ref.rollout.n=2",
        f"{small}.num_data_storage_units=1",
        f"{small}.total_storage_size=1000",
    )
    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    try:
        tq.init(config.transfer_queue)
        yield config
        tq.close()
    finally:
        ray.shutdown()


def test_from_prompts_to_advantages_through_verls_own_worker_store_and_trainer(
    store: DictConfig,
) -> None:
    tasks = {"aa-1": NEAR, "bb-2": "coin-kitchen/trap-cellar"}
    replies = random.Random(0)

    def sometimes(prompt: str) -> str:
        return seek(prompt) if replies.random() < 0.8 else "<env_1>ring bell</env_1>"

    async def generate() -> None:
        worker = AgentLoopWorkerTQ.__ray_metadata__.modified_class(store, Server(sometimes))
        columns = {
            "uid": list(tasks),
            "env": ["toy"] * 2,
            "split": ["train"] * 2,
            "task_id": list(tasks.values()),
            "index": [0, 1],
        }
        batch = tensordict_utils.get_tensordict(
            {name: np.array(values, dtype=object) for name, values in columns.items()}
        )
        tensordict_utils.assign_non_tensor_data(batch, "global_steps", 0)
        tags = [{"is_prompt": True, "status": "pending", "global_steps": 0}] * len(tasks)
        tq.kv_batch_put(keys=list(tasks), partition_id="train", tags=tags)
        await worker.generate_sequences(batch)
        await asyncio.gather(*worker.background_tasks)

    asyncio.run(generate())
    trainer = types.SimpleNamespace(
        config=store, trainer_mode="sync", _add_prompts_to_generate=None
    )
    buffer = PPOTrainer._build_replay_buffer(trainer)
    assert isinstance(buffer, TurnBuffer)
    batch, _ = buffer.sample(global_steps=0, partition_id="train", batch_size=2)
    real = len(batch.keys)
    batch = upsample_batch_to_divisible_size(batch, real + 3, TOKENIZER.eos_token_id)
    order = list(range(len(batch.keys)))
    random.Random(0).shuffle(order)
    batch.reorder(order)
    where = {"keys": batch.keys, "partition_id": "train"}
    logps = tq.kv_batch_get(**where, select_fields=["rollout_log_probs"])
    logps["old_log_probs"] = logps.pop("rollout_log_probs")
    tq.kv_batch_put(**where, fields=logps)

    PPOTrainer._compute_advantage(trainer, batch, {})
    fields = ["uid", "advantages", "response_mask", "rm_scores"]
    stored = tq.kv_batch_get(**where, select_fields=fields)
    uids = stored.pop("uid").tolist()
    notes = [Note.read(uid) for uid in uids if not uid.startswith("pad")]
    assert len(notes) == real == len(uids) - 3
    assert {(note.group, note.trajectory) for note in notes} == {
        (uid, session) for uid in tasks for session in (0, 1)
    }
    rows = rows_of(notes)
    values = iter(advantages.dpepo(rows))
    returns = iter(rows.returns)
    for row, (key, uid) in enumerate(zip(batch.keys, uids, strict=True)):
        mask, found = stored["response_mask"][row], stored["advantages"][row]
        if uid.startswith("pad"):
            assert not mask.any()
            assert not found.any()
            continue
        note = Note.read(uid)
        assert key == f"{note.group}_{note.trajectory}_{note.turn}"
        assert mask.all()
        assert found.tolist() == pytest.approx([next(values)] * len(mask), abs=1e-6)
        assert float(stored["rm_scores"][row].sum()) == next(returns)
