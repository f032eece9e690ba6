# SPDX-License-Identifier: Apache-2.0
"""Models of the package transformers, as they are."""
import torch
import transformers as hf

from modules.case import VOCABULARY, case, classes, ids, image, numbers, with_labels

WIDTH = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
LM = {"vocab_size": VOCABULARY, "max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = WIDTH | LM | {"num_key_value_heads": 2}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def model(architecture, config, **options):
    return getattr(hf, architecture)(getattr(hf, config)(**options))


def language_model(name, architecture, config, ci=False, **options):
    case(name, "transformers", ids(), "cross_entropy", labels=classes, ci=ci)(
        lambda: model(architecture, config, **options))


language_model("Llama", "LlamaForCausalLM", "LlamaConfig", ci=True, **GROUPED)
language_model("Mistral", "MistralForCausalLM", "MistralConfig", sliding_window=4, **GROUPED)
language_model("Qwen2", "Qwen2ForCausalLM", "Qwen2Config", **GROUPED)
language_model("Qwen3", "Qwen3ForCausalLM", "Qwen3Config", head_dim=8, **GROUPED)
language_model("Qwen3-MoE", "Qwen3MoeForCausalLM", "Qwen3MoeConfig", head_dim=8, num_experts=4, num_experts_per_tok=2,
               moe_intermediate_size=16, **GROUPED)
language_model("Mixtral", "MixtralForCausalLM", "MixtralConfig", ci=True, num_local_experts=4, num_experts_per_tok=2,
               **GROUPED)
language_model("Gemma 2", "Gemma2ForCausalLM", "Gemma2Config", head_dim=8, sliding_window=4, **GROUPED)
language_model("Gemma 3", "Gemma3ForCausalLM", "Gemma3TextConfig", ci=True, head_dim=8, sliding_window=4, **GROUPED)
language_model("Phi-3", "Phi3ForCausalLM", "Phi3Config", ci=True, resid_pdrop=0.0, embd_pdrop=0.0, **GROUPED)
language_model("GPT-2", "GPT2LMHeadModel", "GPT2Config", ci=True, n_embd=32, n_layer=2, n_head=4, n_positions=32,
               vocab_size=VOCABULARY, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=2)
language_model("GPT-NeoX", "GPTNeoXForCausalLM", "GPTNeoXConfig", attention_dropout=0.0, hidden_dropout=0.0,
               **WIDTH, **LM)
language_model("OPT", "OPTForCausalLM", "OPTConfig", hidden_size=32, ffn_dim=64, num_hidden_layers=2,
               num_attention_heads=4, word_embed_proj_dim=32, dropout=0.0, **LM)
language_model("Bloom", "BloomForCausalLM", "BloomConfig", hidden_size=32, n_layer=2, n_head=4, vocab_size=VOCABULARY,
               hidden_dropout=0.0, attention_dropout=0.0, pad_token_id=0, bos_token_id=1, eos_token_id=2)
language_model("Falcon", "FalconForCausalLM", "FalconConfig", hidden_size=32, num_hidden_layers=2,
               num_attention_heads=4, vocab_size=VOCABULARY, hidden_dropout=0.0, attention_dropout=0.0, bos_token_id=1,
               eos_token_id=2)
language_model("OLMo 2", "Olmo2ForCausalLM", "Olmo2Config", **GROUPED)
language_model("BERT, masked words", "BertForMaskedLM", "BertConfig", **WIDTH, **LM, **NO_DROPOUT)
language_model("DistilBERT", "DistilBertForMaskedLM", "DistilBertConfig", dim=32, hidden_dim=64, n_layers=2, n_heads=4,
               dropout=0.0, attention_dropout=0.0, **LM)
language_model("RoBERTa", "RobertaForMaskedLM", "RobertaConfig", ci=True, **WIDTH, **NO_DROPOUT,
               **(LM | {"pad_token_id": 1, "bos_token_id": 0}))
language_model("ALBERT", "AlbertForMaskedLM", "AlbertConfig", embedding_size=16, classifier_dropout_prob=0.0, **WIDTH,
               **LM, **NO_DROPOUT)
language_model("ModernBERT", "ModernBertForMaskedLM", "ModernBertConfig", ci=True, local_attention=4,
               global_attn_every_n_layers=2, cls_token_id=1, sep_token_id=2, **WIDTH, **LM)


def padded():
    mask = torch.ones(4, 8, dtype=torch.int64)
    mask[1, 5:], mask[2, 3:] = 0, 0
    return mask


@case("BERT, classes", "transformers", ids(attention_mask=padded), "cross_entropy", labels=classes)
def _():
    return model("BertForSequenceClassification", "BertConfig", num_labels=5, **WIDTH, **LM, **NO_DROPOUT)


@case("DeBERTa-v2", "transformers", ids(attention_mask=padded), "cross_entropy", labels=classes)
def _():
    return model("DebertaV2ForTokenClassification", "DebertaV2Config", num_labels=5, relative_attention=True,
                 position_buckets=4, pos_att_type=["p2c", "c2p"], max_relative_positions=8, **WIDTH, **LM, **NO_DROPOUT)


# ---- from tokens, or sounds, to tokens; the loss is in the graph -------------

def decoder_ids():
    return torch.randint(3, VOCABULARY, (4, 6))


@case("BART", "transformers", with_labels(ids()), ci=True)
def _():
    return model("BartForConditionalGeneration", "BartConfig", d_model=32, encoder_layers=2, decoder_layers=2,
                 encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64,
                 dropout=0.0, decoder_start_token_id=2, forced_eos_token_id=2, **LM)


@case("T5", "transformers", ids(decoder_input_ids=decoder_ids), "cross_entropy", labels=classes)
def _():
    return model("T5ForConditionalGeneration", "T5Config", vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64,
                 num_layers=2, num_heads=4, dropout_rate=0.0, decoder_start_token_id=0)


@case("Whisper", "transformers", lambda: {"input_features": torch.randn(4, 16, 32), "decoder_input_ids": decoder_ids()},
      "cross_entropy", labels=classes, ci=True)
def _():
    return model("WhisperForConditionalGeneration", "WhisperConfig", d_model=32, encoder_layers=2, decoder_layers=2,
                 encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64,
                 num_mel_bins=16, max_source_positions=16, max_target_positions=16, dropout=0.0,
                 decoder_start_token_id=1, vocab_size=VOCABULARY, pad_token_id=0, bos_token_id=1, eos_token_id=2)


@case("Wav2Vec2", "transformers", lambda: {"input_values": torch.randn(4, 400)}, "cross_entropy", labels=classes)
def _():
    return model("Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", num_labels=5, conv_dim=[16, 16],
                 conv_kernel=[10, 3], conv_stride=[5, 2], num_feat_extract_layers=2, num_conv_pos_embeddings=8,
                 num_conv_pos_embedding_groups=4, hidden_dropout=0.0, attention_dropout=0.0, feat_proj_dropout=0.0,
                 final_dropout=0.0, activation_dropout=0.0, layerdrop=0.0, apply_spec_augment=False, **WIDTH,
                 vocab_size=VOCABULARY, classifier_proj_size=16)


# ---- images and two towers ---------------------------------------------------

VISION = WIDTH | {"image_size": 16, "patch_size": 8, "num_channels": 3}
TEXT = WIDTH | LM | {"projection_dim": 16}
TOWERS = image(16), ids()


def both():
    return TOWERS[1]() | TOWERS[0]() | {"return_loss": True}


@case("CLIP", "transformers", both, ci=True)
def _():
    return hf.CLIPModel(hf.CLIPConfig(text_config=TEXT, vision_config=VISION | {"projection_dim": 16}, projection_dim=16))


@case("SigLIP", "transformers", both, ci=True)
def _():
    return hf.SiglipModel(hf.SiglipConfig(text_config=WIDTH | LM | {"projection_size": 32}, vision_config=VISION))


@case("ViT, transformers", "transformers", image(16), "cross_entropy", labels=classes)
def _():
    return model("ViTForImageClassification", "ViTConfig", num_labels=5, **VISION, **NO_DROPOUT)


@case("DINOv2", "transformers", image(16), "cross_entropy", labels=classes)
def _():
    return model("Dinov2ForImageClassification", "Dinov2Config", num_labels=5, mlp_ratio=2, **VISION, **NO_DROPOUT)


@case("Swin, transformers", "transformers", image(32), "cross_entropy", labels=classes)
def _():
    return model("SwinForImageClassification", "SwinConfig", num_labels=5, image_size=32, patch_size=4, embed_dim=16,
                 depths=[2, 2], num_heads=[2, 4], window_size=4, drop_path_rate=0.0, **NO_DROPOUT)


@case("ResNet, transformers", "transformers", image(64), "cross_entropy", labels=classes, lr=1e-4)
def _():
    return model("ResNetForImageClassification", "ResNetConfig", num_labels=5, embedding_size=8,
                 hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")


@case("SegFormer", "transformers", image(64), "mse", labels=numbers, lr=1e-4)
def _():
    return model("SegformerForSemanticSegmentation", "SegformerConfig", num_labels=5, hidden_sizes=[8, 16, 16, 32],
                 depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 2, 4], decoder_hidden_size=16, drop_path_rate=0.0,
                 classifier_dropout_prob=0.0, **NO_DROPOUT)


# ---- adapters ---------------------------------------------------------------

@case("LoRA on Llama", "peft", ids(), "cross_entropy", labels=classes, ci=True, lr=1e-2)
def _():
    import peft
    return peft.get_peft_model(model("LlamaForCausalLM", "LlamaConfig", **GROUPED),
                               peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))


@case("LoRA on BERT", "peft", ids(attention_mask=padded), "cross_entropy", labels=classes, lr=1e-2)
def _():
    import peft
    base = model("BertForSequenceClassification", "BertConfig", num_labels=5, **WIDTH, **LM, **NO_DROPOUT)
    return peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules=["query", "value"], task_type="SEQ_CLS"))
