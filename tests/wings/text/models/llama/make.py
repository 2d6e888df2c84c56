"""Makes the files of this folder with Hugging Face's transformers 4.33: a tiny Llama, and what it makes of some tokens."""
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from safetensors.torch import save_file
for tied in (False, True):
    torch.manual_seed(3)
    config = LlamaConfig(vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, rms_norm_eps=1e-5, tie_word_embeddings=tied, initializer_range=0.5,
                         max_position_embeddings=64, pad_token_id=None)
    model = LlamaForCausalLM(config)
    for p in model.parameters():
        if p.dim() == 1: p.data.uniform_(0.5, 1.5)
    tokens = torch.randint(32, (3, 11))
    out = model(tokens, labels=tokens)
    out.loss.backward()
    weights = {k: v.detach().contiguous() for k, v in model.state_dict().items() if "inv_freq" not in k}
    if tied: del weights["lm_head.weight"]
    grads = {n: p.grad for n, p in model.named_parameters()}
    extra = {"tokens": tokens, "logits": out.logits.detach().contiguous(),
             "gradient.embed_tokens": grads["model.embed_tokens.weight"].contiguous(),
             "gradient.k_proj": grads["model.layers.0.self_attn.k_proj.weight"].contiguous(),
             "gradient.input_layernorm": grads["model.layers.1.input_layernorm.weight"].contiguous()}
    name = "llama_tied" if tied else "llama"
    save_file(weights, f"{name}.safetensors", metadata={"format": "pt"})
    save_file(extra, f"{name}_expected.safetensors", metadata={"loss": repr(out.loss.item()), "made_by": "transformers 4.33.3, torch 1.13"})
    print(name, out.loss.item(), list(weights))
