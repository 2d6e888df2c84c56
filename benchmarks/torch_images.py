"""torchvision's side of reading photographs: ImageFolder, Resize (PIL, antialiased), ToTensor, Normalize, DataLoader with 2 workers.

usage: torch_images.py FOLDER      prints one JSON line
"""
import json
import sys
import time

import torch
from torchvision import datasets, transforms

PROBE_STRIDE = 4801  # images.cpp has it, too: values of the first batch


def main():
    ready = transforms.Compose([transforms.Resize((224, 224)), transforms.ToTensor(),
                                transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])
    torch.set_num_threads(1)
    loader = torch.utils.data.DataLoader(datasets.ImageFolder(sys.argv[1], ready), batch_size=32, num_workers=2)
    rates, probe = [], []
    for _ in range(2):
        images = 0
        begin = time.perf_counter()
        for x, _ in loader:
            images += x.shape[0]
            probe = probe or x.flatten()[::PROBE_STRIDE].tolist()
        rates.append(images / (time.perf_counter() - begin))
    print(json.dumps({"images_per_second": max(rates), "probe": probe}))


if __name__ == "__main__":
    main()
