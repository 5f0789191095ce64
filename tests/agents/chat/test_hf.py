"""The transformers back end on a tiny model with random weights: real generation, small numbers."""

from __future__ import annotations

from pathlib import Path

import peft
import pytest
import torch
from transformers import AutoModelForCausalLM

from agents import ModelOptions, make_agent
from agents.chat import Decoding, Generation, ModelError, Request, open_model
from agents.chat.grammar import parallel_grammar
from agents.chat.hf import TransformersModel, fingerprint
from agents.reply import parse_reply
from leaderboard.play import play
from leaderboard.protocol import make_env
from leaderboard.result import Result
from tests.agents.chat.tiny import tiny_model


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def model(folder: Path) -> TransformersModel:
    return open_model(str(folder))


def asks(texts: list[str], seeds: list[int] | None = None) -> list[Request]:
    seeds = seeds or [0] * len(texts)
    return [
        Request([{"role": "user", "content": text}], seed)
        for text, seed in zip(texts, seeds, strict=True)
    ]


TEXTS = ["go", "take the mug " * 20, "a b c", "look around the room " * 5, "go to desk 1"]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_reply_does_not_depend_on_what_is_generated_beside_it(
    folder: Path, temperature: float
) -> None:
    decoding = Decoding(temperature=temperature, max_tokens=12)
    requests = asks(TEXTS, [3, 1, 4, 1, 5])
    alone = open_model(str(folder), batch_size=1).generate(requests, decoding)
    beside = open_model(str(folder), batch_size=16).generate(requests, decoding)
    assert alone == beside
    assert [reply.tokens_in for reply in alone] == [
        len(open_model(str(folder)).prompt(request.messages)) for request in requests
    ]


def test_greedy_is_what_transformers_itself_generates(
    folder: Path, model: TransformersModel
) -> None:
    plain = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    for request in asks(TEXTS):
        prompt = model.prompt(request.messages)
        output = plain.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False)
        expected = model.tokenizer.decode(output[0, len(prompt) :], skip_special_tokens=True)
        (reply,) = model.generate([request], Decoding(max_tokens=12))
        assert reply.text == expected


def test_drawing_follows_the_models_probabilities(model: TransformersModel) -> None:
    (request,) = asks(["go"])
    prompt = torch.tensor([model.prompt(request.messages)])
    with torch.inference_mode():
        shares = model.model(prompt).logits[0, -1].softmax(-1)
    requests = asks(["go"] * 2000, list(range(2000)))
    replies = model.generate(requests, Decoding(temperature=1.0, max_tokens=1))
    texts = [
        model.tokenizer.decode([token], skip_special_tokens=True) for token in range(len(shares))
    ]
    for text in {texts[token] for token in shares.topk(5).indices.tolist()}:
        expected = sum(float(s) for s, t in zip(shares, texts, strict=True) if t == text)
        found = sum(reply.text == text for reply in replies) / 2000
        assert found == pytest.approx(expected, abs=0.04)
    narrow = model.generate(
        requests[:50], Decoding(temperature=1.0, top_p=float(shares.max()) / 2, max_tokens=1)
    )
    assert {reply.text for reply in narrow} == {texts[int(shares.argmax())]}


@pytest.mark.parametrize("temperature", [0.0, 1.5])
@pytest.mark.parametrize("think", [0, 6])
def test_admissible_decoding_never_leaves_the_grammar(
    model: TransformersModel, temperature: float, think: int
) -> None:
    lists = [["go to desk 1", "look"], [], ["take mug 1 from desk 1", "go to desk 1"]]
    decoding = Decoding(temperature=temperature, max_tokens=200, mode="admissible", think=think)
    requests = [
        Request([{"role": "user", "content": text}], seed, parallel_grammar(lists, think))
        for seed, text in enumerate(TEXTS * 4)
    ]
    for reply in model.generate(requests, decoding):
        read = parse_reply(reply.text, 3, lists, reply.finish_reason)
        assert {issue.code for issue in read.issues} <= {"no_action"}
        assert bool(read.reasoning) <= bool(think)
        assert reply.finish_reason == "stop"


def test_a_cut_reply_says_so(model: TransformersModel) -> None:
    (reply,) = model.generate(asks(["go"]), Decoding(max_tokens=2))
    assert (reply.finish_reason, reply.tokens_out) == ("length", 2)


def test_a_prompt_that_is_too_long_is_an_error_in_its_place(model: TransformersModel) -> None:
    long, short = model.generate(asks(["x " * 3000, "go"]), Decoding(max_tokens=3))
    assert isinstance(long, ModelError)
    assert "give a --budget" in str(long)
    assert isinstance(short, Generation)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft's
def test_an_adapter_is_loaded_onto_its_base_model(folder: Path, tmp_path: Path) -> None:
    base = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    tuned = peft.get_peft_model(
        base, peft.LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False)
    )
    tuned.save_pretrained(tmp_path)
    open_model(str(folder)).tokenizer.save_pretrained(tmp_path)
    adapted = open_model(str(tmp_path))
    with torch.inference_mode():
        prompt = torch.tensor([adapted.prompt(asks(["go"])[0].messages)])
        assert torch.allclose(adapted.model(prompt).logits, tuned(prompt).logits, atol=1e-5)
    assert adapted.settings["weights"] != open_model(str(folder)).settings["weights"]
    assert isinstance(adapted.generate(asks(["go"]), Decoding(max_tokens=3))[0], Generation)


def test_a_model_is_known_by_its_weights_and_not_by_its_place(
    folder: Path, model: TransformersModel, tmp_path: Path
) -> None:
    assert model.settings["weights"] == fingerprint(folder)
    assert fingerprint(tiny_model(tmp_path, seed=1)) != fingerprint(folder)
    assert model.settings["model"] == folder.name
    assert model.settings["dtype"] == "float32"


@pytest.mark.parametrize(
    ("name", "message"),
    [("no-such-model", "it is no folder and no hub id"), ("/tmp", "cannot load the model")],
)
def test_what_is_no_model_is_explained(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        open_model(name)


@pytest.mark.parametrize("agent", ["parallel", "best-of"])
def test_episodes_are_the_same_with_batch_1_and_16(folder: Path, agent: str) -> None:
    def episodes(batch: int, mode: str) -> dict[str, Result]:
        options = ModelOptions(
            str(folder),
            decoding=Decoding(max_tokens=40, mode=mode),
            back_end={"batch_size": batch},
        )
        first = make_env("alfworld", "valid_unseen", 2, 3)
        tasks = first.task_set.tasks[::34][:4]
        envs = [first] + [first.sibling() for _ in range(1, batch)]
        found = {r.task_id: r for r in play(envs, make_agent(agent, options, 2), tasks, 0)}
        for env in envs:
            env.close()
        return found

    for mode in ("free", "admissible"):
        one, many = episodes(1, mode), episodes(16, mode)
        assert {t: r.episode for t, r in one.items()} == {t: r.episode for t, r in many.items()}
        assert {t: r.replies for t, r in one.items()} == {t: r.replies for t, r in many.items()}
        assert all(result.error is None for result in one.values())
        if mode == "admissible":
            for turn in (turn for r in one.values() for turn in r.episode.turns):
                assert turn.acted == turn.admissible
